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
# # A diffusion model inside a constraint
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/constrax/constrax/blob/main/notebooks/diffusion.ipynb)
#
# A masked-diffusion model fills a canvas of positions in any order. A mask of the next token says nothing about that; sums over all texts of the
# constraint, by dynamic programming over positions and states, do. The model here has 1.5 million parameters and comes with the package.

# %%
import sys

if "google.colab" in sys.modules:
    import subprocess

    package = "constrax[all,notebooks] @ git+https://github.com/constrax/constrax"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package], check=True)

# %%
import re

import jax
import matplotlib.pyplot as plt
import numpy as np

import fsa_compile as fc
import models
from fsa_compile import draw
from jax_decode import canvas

plt.rcParams.update(draw.STYLE)  # the colours of the library's pictures

tokenizer = fc.load_tokenizer(models.small_tokenizer_path())
denoiser = models.load_small_denoiser()
prompt = "Note: Please write to hugo.fields@example.org about the order.\nE-mail: "
prompts = denoiser.prompts([prompt] * 6, tokenizer)

# %% [markdown]
# ## Without and with a constraint
#
# The pattern becomes a finite automaton over tokens. Every denoising step draws an exact sample of the block inside it and settles its next token.
# With `draws=4`, four canvases of each row are filled side by side, and canvases that the model would hardly have written give way.

# %%
pattern = r"[a-z]+\.[a-z]+@[a-z]+\.(com|org|net)"
tables = canvas.to_canvas(fc.compile_regex(pattern, tokenizer))
given = {"key": jax.random.key(2), "length": 32, "block": 16, "steps": 16, "left_to_right": True}
free = canvas.denoise(denoiser, prompts, None, **given)
inside = canvas.denoise(denoiser, prompts, tables, **given)
many = canvas.denoise(denoiser, prompts, tables, **given, draws=4)
for name, out in (("without", free), ("inside", inside), ("4 draws", many)):
    texts = out.text(tokenizer)
    share = np.mean([bool(re.fullmatch(pattern, text)) for text in texts])
    right = np.mean([text == "hugo.fields@example.org" for text in texts])
    print(f"{name:8s} {share:4.0%} in the form, {right:4.0%} the right one, for example {texts[0]!r}")
share = np.exp(many.log_weights).mean()
print(f"the model's own probability of the form, by the weights: {share:.0%}")

# %% [markdown]
# ## The order in which positions were settled
#
# Here positions come first of which the model is the surest: light ones. Behind the end of a text stand only end marks, which are sure as soon
# as the length is.


# %%
def settled(axes, out, row=0, width=24):
    """One canvas, a cell per position: its token, coloured by the step in which it was settled."""
    words = tokenizer.vocabulary
    axes.imshow(out.settled[row : row + 1, :width], aspect="auto", vmin=0, vmax=31)
    for at, token in enumerate(out.tokens[row, :width].tolist()):
        label = "end" if token in words.stop_ids else words.decode([token])
        colour = "white" if out.settled[row, at] > 15 else "black"
        axes.text(at, 0, label, ha="center", va="center", rotation=90, fontsize=9, color=colour)
    axes.set_yticks([])


surest = given | {"left_to_right": False}
figure, axes = plt.subplots(2, 1, figsize=(10, 3.2), layout="constrained")
for ax, name, own in zip(axes, ("without a constraint", "inside the pattern"), (None, tables)):
    settled(ax, canvas.denoise(denoiser, prompts, own, **surest))
    ax.set_title(name, loc="left", fontsize=10)
axes[1].set_xlabel("position (24 of 32)")
plt.show()

# %% [markdown]
# ## Marginals
#
# What the constraint makes of every position, before anything is settled: the probability of the end mark, under the model alone and given the
# pattern. Given it, no end can come before the shortest address.

# %%
blank = np.full((1, 16), denoiser.mask_id, np.int32)
logprobs = jax.nn.log_softmax(denoiser(prompts[:1], blank))
marginals = canvas.marginals(tables, logprobs)
stop = tokenizer.vocabulary.stop_ids[0]
figure, ax = plt.subplots(figsize=(8, 2.6), layout="constrained")
ax.plot(np.exp(logprobs[0, :, stop]), "o-", label="the model alone")
ax.plot(np.exp(marginals.logprobs[0, :, stop]), "s-", label="given the pattern")
ax.set(xlabel="position", ylabel="probability of the end mark", ylim=(-0.05, 1.05))
ax.legend()
plt.show()
print(f"log-probability of the pattern under the positions' distributions: {float(marginals.log_mass[0]):.2f}")
