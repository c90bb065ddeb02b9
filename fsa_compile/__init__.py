"""constrax, compiling half: a formal language and a tokenizer become NumPy arrays, offline. Never imports jax.

Names load when first used, so `import fsa_compile.artifact.arrays` costs NumPy only.
"""

import lazy_loader

from fsa_compile.arrays.garbage import collected_rarely

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = collected_rarely(_load)  # modules are made of objects that stay
