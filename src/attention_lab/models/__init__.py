"""Whole networks, what they are made of, and decoding.

Shapes are written with these letters, here and everywhere in the package:

    B  rows of a batch              D  model width                 V  vocabulary: token ids, specials included
    L  query length, in tokens      H  heads                       N  tokens of a packed row, of all parts of a batch
    S  key (or source) length       G  heads of keys and values    M  width of what is mixed, where that is not K
    T  target length                K  width of a head             W  tokens in a window of a convolution
"""
