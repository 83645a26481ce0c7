"""A page that asks runs: `bayesrnn serve`."""
