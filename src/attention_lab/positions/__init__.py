"""How a token knows where it is."""
