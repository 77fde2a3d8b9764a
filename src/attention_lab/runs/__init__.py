"""A run's folder: its lock, its files, its checkpoints, and how it goes on."""
