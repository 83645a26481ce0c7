"""`bayesrnn reproduce`: published results made again."""
