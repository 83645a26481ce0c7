"""Smaller networks: which weights matter least, and the network without them."""
