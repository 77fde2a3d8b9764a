"""No positional encoding: what a causal network can find out by itself."""

from attention_lab.positions.position import Position


class NoPositionalEncoding(Position):
    """No positional encoding (NoPE, Kazemnejad et al. 2023).

    A causal network still tells positions apart, by how much it sees (Haviv et al. 2022).
    """
