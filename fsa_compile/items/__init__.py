"""Catalogues: a constraint that is a set of token sequences, up to tens of millions of them.

For generative retrieval, where a model names an item of a catalogue by a short sequence of ids, and for long lists of names. The
set is a trie in level order, three numbers per node; nothing is expanded over the vocabulary.

Modules: `inputs` reads what the user has, `trie` builds the arrays, `compile` does both. `artifact` holds them, walks them on
the host, and is all that a decoding process imports.

Source: the compressed trie is the idea of STATIC (arXiv 2602.22647, §3); the level order, which makes pointers needless, is the
level-order unary degree sequence of Jacobson 1989, with offsets in place of bits.
"""
