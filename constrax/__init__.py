r"""One object with a model, its tokenizer and everything that a constrained text needs, over the three other packages.

    lm = constrax.load("small")
    print(lm("Question: Is the kettle red?\nAnswer: ", r"(yes|no), because [a-z ]{3,60}\."))

Names load on first use, so that importing this package costs neither JAX nor pynini.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
