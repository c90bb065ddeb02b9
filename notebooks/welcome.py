# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Welcome to constrax
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/constrax/constrax/blob/main/notebooks/welcome.ipynb)
#
# A language model that writes only what you ask for: a pattern, a choice, a value of your own type. Ten cells, less than a minute on a
# CPU, with a small model that comes with the package.

# %%
import sys

if "google.colab" in sys.modules:
    import subprocess

    package = "constrax[all,notebooks] @ git+https://github.com/constrax/constrax"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package], check=True)

# %% [markdown]
# **A text.** The first argument is a prompt, the second what the answer shall be: here a regular expression.

# %%
import constrax

lm = constrax.load("small")
pattern = r"(yes|no), because [a-z ]{3,40}\."
print(lm("Question: Is the kettle red?\nAnswer: ", pattern))

# %% [markdown]
# **A value.** A type gives a value of the type; a list of choices or a JSON Schema work as well.

# %%
import dataclasses
from typing import Literal


@dataclasses.dataclass
class Person:
    name: str
    born: int
    city: Literal["London", "Oslo", "Lima"]


bio = "Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.\nJSON: "
ada = lm(bio, Person)
print(ada, "was", 1843 - ada.born, "when she wrote the first program")

# %% [markdown]
# **A picture.** What was compiled is an automaton over the model's own tokens: a circle is a state, a double circle accepts, an arrow is a
# set of tokens. Then **what the mask took**: at each step the model gave the orange part of its probability to tokens that were not
# allowed.

# %%
from fsa_compile import draw

draw.plot_automaton(lm.compile(r"(yes|no)!*").artifact, lm.tokenizer);

# %%
from jax_decode import report

out = lm.generate("Title: The red kettle\nStory: ", pattern)
report.plot_flow(out)
print(out)

# %%
from fsa_compile import inspect

why = inspect.explain(lm.compile(pattern).artifact, lm.tokenizer, "yes, because 7 is prime.")
print(why.verdict, "after", repr(lm.tokenizer.decode(why.ids[: why.position])))
print("allowed there:", [lm.tokenizer.decode([i]) for i in why.examples])  # why a text is refused
