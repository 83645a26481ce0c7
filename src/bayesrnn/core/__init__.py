"""The mathematics: priors, the posterior, and the network that carries it."""
