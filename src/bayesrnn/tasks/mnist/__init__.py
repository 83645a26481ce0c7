"""Handwritten digits."""
