"""Functions from a predictor and data to numbers. Never trains."""
