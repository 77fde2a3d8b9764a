"""How a network learns: the Lightning module, its optimiser and schedule, and how training stops."""
