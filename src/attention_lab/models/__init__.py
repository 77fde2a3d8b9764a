"""Blocks, the networks made of them, and decoding."""
