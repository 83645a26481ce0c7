"""`bayesrnn prune`: how many weights or units the network of a run can lose, and which."""
