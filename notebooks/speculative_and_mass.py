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
# # Probability under a constraint, true samples, speculation
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/constrax/constrax/blob/main/notebooks/speculative_and_mass.ipynb)
#
# A constraint has a probability under the model: its *mass*. This notebook computes it, shows that masking alone samples another distribution
# than the model's own, samples the right one, and then uses the constraint to decode in fewer passes. It runs on a CPU in a minute or two.

# %%
import sys

if "google.colab" in sys.modules:
    import subprocess

    package = "constrax[all,notebooks] @ git+https://github.com/constrax/constrax"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package], check=True)

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import fsa_compile
import jax_decode
import models
from fsa_compile import draw

plt.rcParams.update(draw.STYLE)  # the colours of the library's pictures
jax_decode.keep_programs()  # on disk, so that the next run of this notebook compiles nothing
tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
decoder = models.load_small()
bos = tokenizer.vocabulary.bos_id
prompt = tokenizer.encode("Review: The soup was cold and the waiter was rude.\nSentiment: ")


def tables_of(*texts):
    return jax_decode.to_device(fsa_compile.compile_choices(texts, tokenizer))


# %% [markdown]
# ## The mass of a choice, and of each option
#
# Every text has many tokenizations, and the probability of the text is their sum. `option_probabilities` walks the tree of all token
# sequences, feeding every shared beginning once. Beginnings less probable than `ignore_below` are left out, and what they can add is bounded.

# %%
exact = {"max_new_tokens": 12, "bos_id": bos, "ignore_below": 1e-12}
sentiment = tables_of("positive", "negative", "neutral", "mixed")
jax_decode.option_probabilities(decoder, prompt, sentiment, tokenizer, **exact)

# %%
sequences = jax_decode.enumerate_sequences(decoder, prompt, sentiment, **exact)
order = np.argsort(-sequences.raw_logprobs)
names = ["·".join(tokenizer.vocabulary.decode([t]) for t in sequences.tokens[i].tolist()) for i in order]
plt.figure(figsize=(7, 0.3 * len(names) + 0.8))
plt.barh(names, np.exp(sequences.raw_logprobs[order]))
plt.xscale("log")
plt.gca().invert_yaxis()
plt.xlabel("probability")
plt.title("every tokenization", loc="left");

# %% [markdown]
# `score` gives the log-probability of each token of a given text (`score_texts` sums over all of its tokenizations):

# %%
scores = jax_decode.score(decoder, prompt, texts=["negative", "neutral", "rude"], tokenizer=tokenizer, bos_id=bos)
for tokens, logprobs in zip(scores.tokens, scores.raw_logprobs):
    print([(tokenizer.vocabulary.decode([t]), round(float(x), 2)) for t, x in zip(tokens.tolist(), logprobs)])

# %% [markdown]
# ## Masking is not conditioning
#
# Take *negative* away and offer *negativity*. Token by token, the model enters `n` gladly, only to find that it cannot end the word as it
# wants. Sampling with a mask pays no price for that; the model's own distribution, given that the text is one of the four, does.
#
# `generate_smc` draws from that one: particles carry weights, and where these become uneven, good particles are copied over bad ones, with
# their caches and places in the automaton. On the way it estimates the mass without bias. Never resampled (`resample_below=0`) and counted
# without their weights, its rows are those of sampling with a mask.

# %%
options = ["positive", "negativity", "neutral", "mixed"]
traps = tables_of(*options)
found = jax_decode.option_probabilities(decoder, prompt, traps, tokenizer, options=options, **exact)
settings = {"key": jax.random.key(0), "max_new_tokens": 12, "bos_id": bos, "particles": 200}
masked = jax_decode.generate_smc(decoder, prompt, traps, resample_below=0, **settings)
smc = jax_decode.generate_smc(decoder, prompt, traps, **settings)
print("mass: exact", np.exp(found.mass.log_mass[0]).round(4), " estimated", np.exp(smc.log_mass[0]).round(4))


def shares(run, weights):
    """Share of each option in weighted rows."""
    texts = np.array(run.generation.text(tokenizer))
    return [weights[texts == option].sum() / weights.sum() for option in options]


bars = {
    "mask only": shares(masked, np.ones(200)),
    "200 particles": shares(smc, np.exp(smc.log_weights[0])),
    "true": found.conditional[0],
}
plt.figure(figsize=(8, 3))
for i, (name, share) in enumerate(bars.items()):
    plt.bar(np.arange(4) + 0.27 * (i - 1), share, 0.25, label=name)
plt.xticks(range(4), options)
plt.legend()
plt.title("probability given the constraint", loc="left");

# %% [markdown]
# The effective sample size tells how many equally weighted rows the particles are worth. Importance sampling lets it fall; resampling
# restores it. Here the first sentence of a story must do without the letter e:

# %%
no_e = jax_decode.to_device(fsa_compile.compile_regex(r"[A-Z][a-df-z ]+\.", tokenizer))
story = tokenizer.encode("Title: The red kettle\nStory: ")
settings = {"max_new_tokens": 24, "bos_id": bos}
plt.figure(figsize=(7, 3))
for below, name in ((0.0, "importance sampling"), (0.5, "resampled below one half")):
    run = jax_decode.generate_smc(decoder, story, no_e, key=jax.random.key(0), particles=64, resample_below=below, **settings)
    plt.plot(run.ess[:, 0], label=f"{name}: log mass {run.log_mass[0]:.2f}")
    print(run.generation.text(tokenizer)[run.draw()[0, 0]])
plt.xlabel("token")
plt.ylabel("effective sample size")
plt.legend();

# %% [markdown]
# This language has too many texts to enumerate. `log_mass` then uses importance sampling, with a standard error of the logarithm. Where the
# effective sample size is small, both are to be believed only after more samples:

# %%
jax_decode.log_mass(decoder, story, no_e, key=jax.random.key(0), samples=512, max_prefixes=0, **settings)

# %% [markdown]
# ## Fewer passes
#
# A constraint also says what must come next. `forced=8` feeds runs of tokens that the constraint allows no choice about as one block;
# `draft` lets something cheaper propose tokens, which the model verifies in one pass. Neither changes the distribution. As a draft model
# serves here the model itself with noise on its parameters.

# %%
record = jax_decode.to_device(
    fsa_compile.compile_regex(r'\{"name": "[A-Z][a-z]+( [A-Z][a-z]+)?", "born": [0-9]{4}\}', tokenizer)
)
biography = tokenizer.encode("Bio: Ada Lovelace was born in 1815 in London.\nJSON: ")
leaves, tree = jax.tree.flatten(decoder)
keys = jax.random.split(jax.random.key(0), len(leaves))
noisy = tree.unflatten([x + 0.5 * x.std() * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves)])


def decode(**how):
    return jax_decode.generate(
        decoder, biography, record, key=jax.random.key(5), sampler=jax_decode.Categorical(0.7), num_samples=8, max_new_tokens=48,
        bos_id=bos, **how,
    )  # fmt: skip


ways = {
    "plain": {},
    "prompt lookup": {"draft": jax_decode.PromptLookup(4)},
    "draft model": {"draft": jax_decode.ModelDraft(noisy, 4), "forced": 8},
}
runs = {name: decode(**how) for name, how in ways.items()}
for name, run in runs.items():
    print(f"{name:16}{run.text(tokenizer)[0]}")

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 2.2), sharey=True)
left.barh(list(runs), [run.passes_per_token for run in runs.values()])
left.set_title("passes of the model per token", loc="left")
right.barh(list(runs), [np.nan_to_num(run.work.acceptance_rate) for run in runs.values()])
right.set_title("share of drafted tokens accepted", loc="left")
left.invert_yaxis();
