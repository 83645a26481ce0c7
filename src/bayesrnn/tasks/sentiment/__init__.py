"""Ratings and labels of texts."""
