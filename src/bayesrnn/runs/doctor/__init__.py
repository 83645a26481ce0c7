"""`bayesrnn doctor`: what to look at when a network does not learn, and what to try."""
