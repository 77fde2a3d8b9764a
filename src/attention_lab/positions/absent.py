"""No positions at all: what a causal network can find out by itself."""

from attention_lab.positions.position import Position


class NoPosition(Position):
    """Says nothing. A causal network still tells positions apart, by how much it sees (Haviv et al. 2022)."""
