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
# # True to the tokenizer: canonical tokens, isolated spaces, healing
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/constrax/constrax/blob/main/notebooks/tokenization.ipynb)
#
# A text can be cut into tokens in many ways, and a language model was trained on one of them. A constraint on texts allows all of them, unless
# it is told otherwise. This notebook shows what that means, on the tokenizer and the small model that come with the project. It runs on a
# CPU in less than a minute.

# %%
import sys

if "google.colab" in sys.modules:
    import subprocess

    package = "constrax[all,notebooks] @ git+https://github.com/constrax/constrax"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package], check=True)

# %%
import matplotlib.pyplot as plt
import numpy as np

import fsa_compile
import jax_decode
import models
from fsa_compile import draw

plt.rcParams.update(draw.STYLE)  # the colours of the library's pictures
jax_decode.keep_programs()  # on disk, so that the next run of this notebook compiles nothing
tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
vocabulary, canonical = tokenizer.vocabulary, fsa_compile.canonical_tables(tokenizer)
decoder = models.load_small()


def shown(tokens):
    return "".join(f"[{vocabulary.tokens[t].decode('utf-8', 'backslashreplace')}]" for t in tokens).replace(" ", "▁")


def sequences(walk, longest=12):
    """All token sequences that a walk allows from where it stands to the end of a text."""
    if walk.accepting:
        yield ()
    for token in np.flatnonzero(walk.allowed()).tolist():
        if token not in walk.constraint.stop_ids and longest:
            walk.advance(token)
            yield from ((token, *rest) for rest in sequences(walk, longest - 1))
            walk.rewind(1)


# %% [markdown]
# ## Three cities
#
# The example of Cognetta et al. (2025, §3): a model that may write one of three names. First every way to spell them:

# %%
cities = ["Cologne", "Berlin", "Munich"]
every = fsa_compile.compile_choices(cities, tokenizer)
draw.plot_automaton(every, tokenizer, max_nodes=20, max_labels=2);

# %% [markdown]
# and then with `canonical=True` the one that the tokenizer itself would make of each:

# %%
own = fsa_compile.compile_choices(cities, tokenizer, canonical=True)
nodes, edges, accepting = [()], [], set()
for tokens in sequences(fsa_compile.CanonicalWalk(own, canonical)):
    for n in range(len(tokens)):
        if tokens[: n + 1] not in nodes:
            nodes.append(tokens[: n + 1])
            edges.append((nodes.index(tokens[:n]), nodes.index(tokens[: n + 1]), shown(tokens[n : n + 1])))
    accepting.add(nodes.index(tokens))
draw.plot_graph(draw.Graph(tuple(range(len(nodes))), frozenset(accepting), tuple(edges), 0, frozenset()));

# %%
texts = {}
for tokens in sequences(every.walk()):
    texts.setdefault(vocabulary.decode(tokens), set()).add(tuple(vocabulary.tokens[t] for t in tokens))
print("ways to spell    canonical")
for city in cities:
    found = [t for t in sequences(fsa_compile.CanonicalWalk(own, canonical)) if vocabulary.decode(t) == city]
    print(f"{len(texts[city]):13d}    {len(found)}: {shown(found[0])}")
    assert list(found[0]) == tokenizer.encode(city)

# %% [markdown]
# ## An isolated space
#
# Most tokens of a word begin with its space. A space by itself is a token too, and a constraint that begins with one lets the model take
# it, and then the word without its space: two tokens the model has hardly ever seen in a row.

# %%
house = fsa_compile.compile_regex(" (the|a|one) house", tokenizer)
canonical_house = fsa_compile.compile_regex(" (the|a|one) house", tokenizer, canonical=True)
walk = house.walk()
print("every spelling begins with", shown(np.flatnonzero(walk.allowed())))
print("canonical ones with       ", shown(np.flatnonzero(fsa_compile.CanonicalWalk(canonical_house, canonical).allowed())))

# %% [markdown]
# ## A prompt that ends too late
#
# The same happens at the end of a prompt. These prompts end inside what may be one token when the text goes on:

# %%
question = "Question: Is the kettle red?\nAnswer:"
for prompt, pattern in ((question + " ", "(yes|no)"), ("Is the kett", "le( red)?"), ("A red", "[a-z ]+"), ("A red", "[0-9]+")):
    healed = fsa_compile.heal(prompt, fsa_compile.compile_regex(pattern, tokenizer), tokenizer)
    print(f"{prompt[-12:]!r:16} {pattern:10} taken back: {shown(healed.taken_back) or 'nothing'}")

# %% [markdown]
# `heal` takes tokens back as far as a token could lie across the border, and puts their text before the constraint. The constraint is
# not compiled again: it gets a few more nodes. Here one batch continues the same prompt twice, as it is and healed:

# %%
prompt = question + " no, because the kett"
ending = fsa_compile.compile_regex(r"[a-z ]{2,30}\.", tokenizer)
healed = fsa_compile.heal(prompt, ending, tokenizer)
out = jax_decode.generate(
    decoder,
    [tokenizer.encode(prompt), healed.prompt],
    jax_decode.to_device([ending, healed.constraint]),
    max_new_tokens=24,
    bos_id=vocabulary.bos_id,
)
for name, tokens, text in zip(("as it is", "healed"), out.tokens, (out.text(tokenizer)[0], healed.text(out.tokens[1]))):
    print(f"{name:9} {shown(tokens)}\n          {prompt[-9:]}|{text}")

# %% [markdown]
# What does the model think of these tokens? The log-probability of each, under the model alone:

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True, constrained_layout=True)
for ax, row, title in zip(axes, (0, 1), ("as it is", "healed")):
    tokens = out.tokens[row][:9]
    ax.bar(range(len(tokens)), out.raw_logprobs[row][:9], color=f"C{1 - row}")
    ax.set_xticks(range(len(tokens)), [shown([t])[1:-1] for t in tokens], rotation=45)
    ax.set_title(title, loc="left")
axes[0].set_ylabel("nats");

# %% [markdown]
# With `canonical=True`, prompt and text are one language, of which only the tokens are allowed that the tokenizer makes of both together.
# What every text has in common stays in the prompt:

# %%
for prompt, ends in (("A red kett", ["le", "les", "y"]), ("Bio: Ad", ["a", "am", "der"]), (question + " ", ["yes", "no"])):
    healed = fsa_compile.heal(prompt, fsa_compile.compile_choices(ends, tokenizer), tokenizer, canonical=True)
    ways = [healed.prompt + list(t) for t in sequences(fsa_compile.CanonicalWalk(healed.constraint, canonical))]
    print(f"{shown(healed.prompt[-2:]):>14} then {' or '.join(shown(way[len(healed.prompt) :]) for way in ways)}".replace("\n", "\\n"))
    assert sorted(ways) == sorted(tokenizer.encode(prompt + end) for end in ends)

# %% [markdown]
# ## Tokens that need no model
#
# Where one token is left, there is nothing to ask the model. With every spelling allowed that hardly happens, even where the text is fixed;
# with canonical tokens, all fixed text is skipped (coalescence, Cognetta et al. 2025, §3.3.1).

# %%
templates = {
    "city": "The capital is (Cologne|Berlin|Munich)\\.",
    "form": "Name: (Ada|Boris|Clara)\nBorn: 19[0-9]{2}\nCity: (Cologne|Berlin|Munich)\n",
    "object": '\\{"name": "(Ada|Boris|Clara)", "city": "(Cologne|Berlin|Munich)", "married": (true|false)\\}',
}
rates = {}
rng = np.random.default_rng(0)
for name, pattern in templates.items():
    walks = [fsa_compile.compile_regex(pattern, tokenizer).walk() for _ in range(20)]
    narrow = fsa_compile.compile_regex(pattern, tokenizer, canonical=True)
    walks = {"every spelling": walks, "canonical": [fsa_compile.CanonicalWalk(narrow, canonical) for _ in walks]}
    for kind, rows in walks.items():
        counts = []
        for walk in rows:
            while not walk.finished:
                allowed = np.flatnonzero(walk.allowed())
                counts.append(len(allowed) == 1)
                walk.advance(int(rng.choice(allowed)))
        rates[name, kind] = np.mean(counts)

fig, ax = plt.subplots(figsize=(7, 2.6), constrained_layout=True)
for i, kind in enumerate(("canonical", "every spelling")):
    heights = [rates[name, kind] for name in templates]
    ax.bar(np.arange(len(templates)) + (i - 0.5) * 0.36, heights, 0.34, label=kind)
ax.set_xticks(range(len(templates)), templates)
ax.set_ylabel("share of steps\nwith one choice")
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
print({kind: f"{np.mean([rates[name, kind] for name in templates]):.0%}" for kind in walks})

# %% [markdown]
# ## Conversations
#
# `chat_prompt` makes the prompt of a conversation, by the template that belongs to the tokenizer, or by a convention that is asked for by
# name. What a user types stays text, even where it looks like a marker.

# %%
talk = fsa_compile.chat_prompt([{"role": "user", "content": "Is <end_of_turn> red?"}], tokenizer, template="gemma")
names = {token: name for name, token in vocabulary.special.items()}
print("".join(names.get(t) or shown([t]) for t in talk.ids).replace("\n", "\\n"))
print("ends with", [names[t] for t in talk.stop_ids])
