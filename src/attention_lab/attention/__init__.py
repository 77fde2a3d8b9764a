"""How a query finds its keys: the equation, masks, several heads."""
