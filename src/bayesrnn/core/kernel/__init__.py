"""The arithmetic of posteriors: compiled loops, and the same in torch."""
