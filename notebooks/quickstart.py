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
# # constrax quickstart
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/constrax/constrax/blob/main/notebooks/quickstart.ipynb)
#
# A language model picks one token after another. **constrax** compiles the texts you are willing to accept (here: a regular
# expression) into tables over the model's own tokens, and keeps every step inside them: each token is masked, sampled and
# advanced on the accelerator, in one compiled loop. What comes out *always* matches.
#
# This notebook runs on a CPU in about a minute. It uses a small Gemma-style model that comes with the package.

# %%
import sys

if "google.colab" in sys.modules:
    import subprocess

    package = "constrax[all,notebooks] @ git+https://github.com/constrax/constrax"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package], check=True)

# %% [markdown]
# ## Three lines
#
# `constrax.load` brings a model with its tokenizer. Called with a prompt and a pattern, it answers with a text that matches. A list of
# choices, a JSON Schema, a Python type or a grammar can stand in the pattern's place.

# %%
import constrax

lm = constrax.load("small")
print(lm("Question: Is the kettle red?\nAnswer: ", r"(yes|no), because [a-z ]+\."))

# %% [markdown]
# A type gives a value of the type.

# %%
import dataclasses
from typing import Literal


@dataclasses.dataclass
class Person:
    name: str
    born: int
    city: Literal["London", "Oslo", "Lima"]


lm("Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.\nJSON: ", Person)

# %% [markdown]
# The rest of this notebook opens the box: the same steps by hand, with pictures of what is compiled and masked.

# %%
import re
import tempfile
from pathlib import Path

import jax

import fsa_compile
import jax_decode
from fsa_compile import draw, inspect

# %% [markdown]
# ## The model and its tokenizer
#
# The small model has 1.5 million parameters. It read short made-up texts and learned to pull facts out of them. Its prompts
# have a text, and a cue for what is wanted. (`fsa_compile.load_tokenizer` and `models.load` load the two by themselves.)

# %%
tokenizer, decoder = lm.tokenizer, lm.decoder
tokenizer, decoder.vocab_size

# %% [markdown]
# ## Compile
#
# `compile_regex` takes Python's regular expressions and means what `re.fullmatch` means. It needs the tokenizer, because the
# result speaks about tokens: the word `because` may come as one token, or as `be` + `cause`; all ways to spell a match count.

# %%
answer = fsa_compile.compile_regex(r"(yes|no), because [a-z ]{3,60}\.", tokenizer)
answer

# %%
inspect.statistics(answer)

# %% [markdown]
# ## Look at it
#
# Below is the token automaton of a shorter pattern. A circle is a state, a double circle accepts, and an arrow is a set of tokens:
# `yes` may be one token, two, or three.

# %%
cheer = fsa_compile.compile_regex(r"(yes|no)!*", tokenizer)
draw.plot_automaton(cheer, tokenizer);

# %% [markdown]
# Why is a text refused, and where? `explain` knows.

# %%
why = inspect.explain(cheer, tokenizer, "yess!")
print(why.verdict, "after", repr(tokenizer.decode(why.ids[: why.position])))
print("allowed there:", [tokenizer.decode([i]) for i in why.examples])

# %% [markdown]
# The same tables can be walked on the host, token by token. At each step `allowed()` is the mask over the whole vocabulary.
# In the picture each row is one step, from left to right are the token ids, dark where they are allowed, and the circle is the token
# that was taken.

# %%
walk = answer.walk()
masks, taken = [walk.allowed()], []
for token in [*tokenizer.encode("yes, because the kettle is red."), tokenizer.vocabulary.stop_ids[0]]:
    walk.advance(token)
    taken.append(token)
    masks.append(walk.allowed())

draw.plot_mask(masks[:-1], tokenizer, ids=taken);

# %% [markdown]
# ## Generate
#
# `to_device` puts the tables on the accelerator. `generate` runs the model; `key` is the randomness, and the same key gives the
# same text.

# %%
prompt = tokenizer.encode("Question: Is the kettle red?\nAnswer: ")
bos = tokenizer.vocabulary.bos_id
tables = jax_decode.to_device(answer)

out = jax_decode.generate(
    decoder, prompt, tables, key=jax.random.key(0), max_new_tokens=48, sampler=jax_decode.Categorical(), bos_id=bos
)
print(out.text(tokenizer))
out

# %% [markdown]
# The model alone does not always keep to the form. Eight samples without and with the constraint:

# %%
options = {"max_new_tokens": 48, "sampler": jax_decode.Categorical(1.2), "num_samples": 8, "bos_id": bos}
stops = list(tokenizer.vocabulary.stop_ids)
free = jax_decode.generate(decoder, prompt, key=jax.random.key(1), stop_ids=stops, **options)
held = jax_decode.generate(decoder, prompt, tables, key=jax.random.key(1), **options)

for name, result in (("without", free), ("with", held)):
    print(name)
    for text in result.text(tokenizer):
        match = re.fullmatch(r"(yes|no), because [a-z ]{3,60}\.", text)
        print("   ", "matches   " if match else "no match  ", repr(text))

# %% [markdown]
# Log-probabilities come in two kinds: among the allowed tokens, and among all of the model's. Their difference, in nats, is what the
# constraint cost the model on that row.

# %%
(held.total_logprob - held.raw_total_logprob).round(2)

# %% [markdown]
# ## A batch with different constraints
#
# Every row may have its own constraint, or none. Constraints are made from patterns, from lists of choices, and combined with
# `|` (either), `&` (both), `-` (but not), `~` (any text but) and `+` (one after the other).

# %%
byte = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
languages = [
    fsa_compile.choices(["positive", "negative", "neutral", "mixed"]),
    fsa_compile.regex(rf"{byte}(\.{byte}){{3}}"),
    fsa_compile.regex(r"\{.{1,200}\}") & fsa_compile.regex(r'.*"born": [0-9]{4}.*') - fsa_compile.regex(r".*chef.*"),
]
prompts = [
    "Review: The soup was cold and the waiter was rude.\nSentiment: ",
    "Log: 10:02 connection from 192.168.4.17 refused\nIP: ",
    "Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.\nJSON: ",
    "Title: The red kettle\nStory: ",
]
batch = jax_decode.to_device([fsa_compile.compile_language(language, tokenizer) for language in languages])
out = jax_decode.generate(
    decoder,
    [tokenizer.encode(text) for text in prompts],
    batch,
    constraint=[0, 1, 2, None],
    key=jax.random.key(2),
    max_new_tokens=[8, 24, 64, 40],
    stop_ids=[stops] * 4,
    bos_id=bos,
)
for status, text in zip(out.status, out.text(tokenizer)):
    print(f"{status.name:10}", text)

# %% [markdown]
# The story has no constraint, so it may be cut off by its limit. A row with a constraint knows its limit from the first token on, and
# chooses only tokens after which the text can still be completed.
#
# ## Save and load
#
# A compiled constraint is one file of NumPy arrays. The process that decodes needs neither the compiler nor a tokenizer library;
# the file remembers which vocabulary it belongs to.

# %%
path = Path(tempfile.mkdtemp()) / "answer.npz"
answer.save(path)
again = fsa_compile.CompiledConstraint.load(path, tokenizer)

same = jax_decode.generate(decoder, prompt, jax_decode.to_device(again), key=jax.random.key(1), **options)
assert same.text(tokenizer) == held.text(tokenizer)
print(f"{path.name}: {path.stat().st_size:,} bytes")

# %% [markdown]
# From a shell, `fsa-compile` compiles, inspects and checks, and `jax-decode` generates; `--help` says how.
