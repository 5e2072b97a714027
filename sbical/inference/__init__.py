"""From simulations to a posterior: summaries, networks, importance sampling, and the routes that combine them."""
