"""A search for good settings: many workers, one folder, on Optuna's ask and tell."""
