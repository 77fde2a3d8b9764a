"""Attention Lab: small Transformers learn tasks whose correct attention is known."""
