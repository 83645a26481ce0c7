"""Plain deterministic networks. Nothing Bayesian."""
