"""The three stories: train, evaluate, compare."""
