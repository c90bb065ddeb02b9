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
# # Programs: Python by indentation
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/constrax/constrax/blob/main/notebooks/programs.ipynb)
#
# Python's blocks end where the indentation does, so whoever writes a line has to know which blocks are open. **constrax** compiles Python's grammar
# and keeps the open blocks on a stack beside the model. The model here has 1.5 million parameters and read small functions for some minutes on a CPU.

# %%
import sys

if "google.colab" in sys.modules:
    import subprocess

    package = "constrax[all,notebooks] @ git+https://github.com/constrax/constrax"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package], check=True)

# %%
import ast

import jax

import fsa_compile
import jax_decode
import models
from fsa_compile import draw_grammar, inspect, library

jax_decode.keep_programs()  # on disk, so that the next run of this notebook compiles nothing
tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
decoder = models.load_small_programmer()

# %% [markdown]
# ## One function
#
# `python` of the library describes most of Python 3.11. Two lines more make it one function with at most four blocks inside each other.

# %%
function = library.grammar_text("python") + """
%override start: def_head block
%indent 4 4
"""
limits = fsa_compile.CompileLimits(max_seconds=300)  # a few seconds on a machine that does nothing else
constraint = fsa_compile.compile_grammar(function, tokenizer, limits=limits, **library.options("python"))
constraint

# %% [markdown]
# Lines that leave a block, and one that leaves it halfway:

# %%
for text in ("def f(x):\n    if x:\n        return 1\n    return 2\n", "def f(x):\n    if x:\n        return 1\n  return 2\n"):
    why = inspect.explain(constraint, tokenizer, text)
    print(f"{why.verdict:9}", repr(text[:24] + "…" + text[-14:]), [tokenizer.decode([i]) for i in why.examples[:4]])

# %% [markdown]
# ## Without and with the constraint
#
# A comment says what is wanted. Three groups of rows, one batch: free ones, rows inside the grammar, and rows inside the grammar that have 40 tokens.
# A temperature of 1.2 makes so small a model err.

# %%
wanted = [
    "# Sum the squares of the numbers that are odd.\n",
    "# Group the words by length.\n",
    "# Find the first of the prices that is greater than 30.\n",
    "# Read a whole number, or give 7.\n",
    "# Count what is even in a table.\n",
    "# Keep the scores between 10 and 20.\n",
    "# Say cold below 5, cool below 15, warm below 25, else hot.\n",
    "# Count the lines of a file.\n",
]
groups = {"without": (None, 224), "with": (0, 224), "in 40 tokens": (0, 40)}
rows = {
    "max_new_tokens": [room for _, room in groups.values() for _ in wanted],
    "constraint": [which for which, _ in groups.values() for _ in wanted],
    "stop_ids": list(tokenizer.vocabulary.stop_ids),
}
tables = jax_decode.to_device(constraint)


def written(temperature):
    out = jax_decode.generate(
        decoder,
        wanted * len(groups),
        tables,
        tokenizer=tokenizer,
        key=jax.random.key(0),
        sampler=jax_decode.Categorical(temperature),
        raw_logprobs=False,
        **rows,
    )
    size = len(wanted)
    return {name: (out.text()[k * size : (k + 1) * size], out.tokens[k * size : (k + 1) * size]) for k, name in enumerate(groups)}


def parses(text):
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


found = written(1.2)
for name, (texts, _) in found.items():
    print(f"{name:12} {sum(map(parses, texts))} of {len(texts)} parse")

# %% [markdown]
# ## The stack, beside the text
#
# What the constraint itself had open at each line, read off its stack token by token: a block is entered by a line that is indented further, and one
# line can leave several.

# %%
texts, tokens = found["with"]
deepest = max(range(len(texts)), key=lambda k: texts[k].count("\n            "))
draw_grammar.plot_blocks(constraint, tokenizer, tokens[deepest]);

# %% [markdown]
# With 40 tokens every block was still closed in time: near the end only tokens are allowed after which the rest fits.

# %%
texts, tokens = found["in 40 tokens"]
longest = max(range(len(texts)), key=lambda k: texts[k].count("\n"))
draw_grammar.plot_blocks(constraint, tokenizer, tokens[longest]);

# %% [markdown]
# ## Run one
#
# Almost without temperature the model writes what it has learned; the program on the device is the same. The grammar makes it a function, not the
# one that was asked for: so small a model may count what it should sum.

# %%
source = written(0.05)["with"][0][0]
print(source)
names = {}
exec(source, names)
(name,) = (node.name for node in ast.parse(source).body)
print(f"{name}([1, 2, 3, 5]) =", names[name]([1, 2, 3, 5]))
