"""A byte automaton composed with the detokenizing transducer: the token automaton as an artifact."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["detokenize"])
