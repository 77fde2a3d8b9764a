"""What is measured: right tokens, right sequences, and how well attention aligns."""
