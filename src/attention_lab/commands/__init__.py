"""What `train.py` and `evaluate.py` do, and how they end."""
