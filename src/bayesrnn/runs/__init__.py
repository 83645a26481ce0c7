"""One run of any task: configured, started, loaded, evaluated, compared."""
