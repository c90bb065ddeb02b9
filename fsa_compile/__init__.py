"""constrax, compiling half: a formal language and a tokenizer become NumPy arrays, offline. Never imports jax.

Names load when first used, so `import fsa_compile.artifact.arrays` costs NumPy only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
