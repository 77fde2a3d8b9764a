"""What must be learned: a source sequence and, for every target token, the source position it comes from."""
