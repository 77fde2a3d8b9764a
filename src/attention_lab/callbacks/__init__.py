"""What is shown while training goes on: looks, never touches."""
