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
# # Grammars
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/constrax/constrax/blob/main/notebooks/grammars.ipynb)
#
# A regular expression cannot count brackets. A grammar can: JSON, SQL, program code and tool calls nest without bound. **constrax** compiles
# a grammar to the same kind of tables as a regular expression, and one more that says what a closing bracket leads back to. The stack
# lives on the accelerator beside the tables, so the loop that samples from the model still never asks the host.
#
# The notebook [quickstart](quickstart.ipynb) shows the rest; this one runs on a CPU in less than a minute.

# %%
import sys

if "google.colab" in sys.modules:
    import subprocess

    package = "constrax[all,notebooks] @ git+https://github.com/constrax/constrax"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package], check=True)

# %%
import ast
import json

import jax

import fsa_compile
import jax_decode
import models
from fsa_compile import draw_grammar, inspect, library

jax_decode.keep_programs()  # on disk, so that the next run of this notebook compiles nothing
tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
decoder = models.load_small()

# %% [markdown]
# ## Write a grammar
#
# The syntax is that of the parser library Lark: rules in lower case, terminals (pieces of text) in upper case or in quotes, regular
# expressions between slashes. GBNF, as llama.cpp has it, is understood too. This one describes JSON arrays of numbers and arrays:

# %%
arrays = r"""
start: array
array: "[" [value ("," value)*] "]"
value: array | NUMBER
NUMBER: /-?[0-9]+/
%ignore " "
"""
constraint = fsa_compile.compile_grammar(arrays, tokenizer)
constraint

# %% [markdown]
# ## Look at it
#
# What calls itself becomes a *frame*: a little automaton of its own that others call. A call (‹name› in the picture) puts a cell on the stack,
# and the end of a frame takes it off. Rules that do not nest cost nothing: they are written out where they are used.

# %%
draw_grammar.plot_frames(arrays);

# %% [markdown]
# The model's tokens do not care where a bracket ends: one of them may be `]],`. The compiler has worked out for each token which
# frames it leaves and enters. Here is the stack along a text, token by token:

# %%
ids = tokenizer.encode("[1, [23, []], [[4]]]")
draw_grammar.plot_stack(constraint, tokenizer, ids);

# %% [markdown]
# Why is a text refused, and what was open there?

# %%
why = inspect.explain(constraint, tokenizer, "[1, [2, ]]")
print(why.verdict, "after", repr(tokenizer.decode(why.ids[: why.position])))
print("stack:", why.stack[0])
print("allowed there:", [tokenizer.decode([i]) for i in why.examples])

# %% [markdown]
# The costs are known when it is compiled, and no text makes them larger: `max_pops` is the most stack cells one token takes off, and
# `step_bytes` is what one step reads of the masks for one sequence.

# %%
inspect.statistics(constraint)

# %% [markdown]
# ## The library
#
# Ten grammars come with the package, each tested against a real parser. The first comment of each says exactly which language it is.

# %%
for name in library.names():
    print(f"{name:16}", library.description(name).splitlines()[0])

# %%
any_json = fsa_compile.compile_grammar(library.grammar_text("json_compact"), tokenizer, **library.options("json_compact"))
for seed in (5, 47, 59):
    print(tokenizer.vocabulary.decode(inspect.sample(any_json, seed=seed, max_tokens=20)))

# %% [markdown]
# ## Generate
#
# Everything is as with a regular expression. The small model read orders and learned to write them as JSON; here it is sampled at a high
# temperature, without and with the grammar.

# %%
bos, stops = tokenizer.vocabulary.bos_id, list(tokenizer.vocabulary.stop_ids)
order = "Order: On 20 May 2004 Ada Keller ordered 5 linen pots at 40.25 each and 10 long mats for 4.40 each.\nJSON: "
options = {"max_new_tokens": 96, "sampler": jax_decode.Categorical(1.3), "num_samples": 8, "bos_id": bos}
free = jax_decode.generate(decoder, tokenizer.encode(order), key=jax.random.key(1), stop_ids=stops, **options)
tables = jax_decode.to_device(any_json)
held = jax_decode.generate(decoder, tokenizer.encode(order), tables, key=jax.random.key(1), **options)


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


for name, result in (("without", free), ("with", held)):
    print(name)
    for text in result.text(tokenizer):
        print("   ", "matches   " if is_json(text) else "no match  ", repr(text if len(text) < 90 else text[:89] + "…"))

# %% [markdown]
# A row with a constraint always completes: within `max_new_tokens`, and within `max_depth` cells of the stack. With three cells
# there is room for an object, an array in it, and a string or a number.

# %%
flat = jax_decode.generate(decoder, tokenizer.encode(order), tables, key=jax.random.key(2), max_depth=3, **options)
for text in flat.text(tokenizer)[:4]:
    json.loads(text)
    print(text)

# %% [markdown]
# ## Rows with different grammars
#
# The library's `python_values` has Python's literals and calls. It stands in one batch with JSON:

# %%
calls = fsa_compile.compile_grammar(library.grammar_text("python_values"), tokenizer, **library.options("python_values"))
prompts = [order, "Request: Put a yellow stool on the shopping list.\nCall: "]
both = jax_decode.generate(
    decoder,
    [tokenizer.encode(prompt) for prompt in prompts],
    jax_decode.to_device([any_json, calls]),
    key=jax.random.key(3),
    max_new_tokens=96,
    sampler=jax_decode.Categorical(0.5),
    bos_id=bos,
)
for status, text in zip(both.status, both.text(tokenizer)):
    print(f"{status.name:9}", text)
print(ast.dump(ast.parse(both.text(tokenizer)[1].lstrip(), mode="eval").body))

# %% [markdown]
# ## A conflict, and how to mend it
#
# One stack follows one reading of the text. In the next grammar an `else` may belong to two ifs, so there are two. The compiler does not
# guess; it says where it happens, with a shortest example:

# %%
dangling = r"""
start: statement*
statement: NAME "=" NAME ";"
         | "if" NAME ":" statement ["else" statement]
NAME: /[a-z]+/
%ignore " "
"""
try:
    fsa_compile.compile_grammar(dangling, tokenizer)
except fsa_compile.ConstraintError as error:
    print(error)

# %% [markdown]
# The first way out is a word or a bracket of its own, which is also kinder to readers:

# %%
mended = dangling.replace('["else" statement]', '["else" statement] "end"')
fsa_compile.compile_grammar(mended, tokenizer)

# %% [markdown]
# The second is to follow all readings at once, on several stacks. That costs so many times as much per step and is exact as long as they
# suffice (here: three ifs inside each other); where they do not, readings are dropped, which can only forbid, and the status says so.

# %%
several = fsa_compile.compile_grammar(dangling, tokenizer, stacks=4)
print(several)
for text in ("if a: if b: c = d; else e = f;", "if a: b = c; else d = e; else f = g;"):
    print(inspect.explain(several, tokenizer, text).verdict, repr(text))

# %% [markdown]
# ## Free text, then a constraint
#
# A model may think aloud before it answers. `%until` is any text up to and including the first occurrence of a trigger; special tokens of
# the vocabulary stand in angle brackets. Here: text without constraint, then `Call: `, then a call.

# %%
tool = r"""
start: <start_of_turn> %until("Call: ") call
call: NAME "(" [argument ("," " "? argument)*] ")"
argument: NAME "=" (STRING | NUMBER | call)
NAME: /[a-z_]{1,20}/
STRING: /"[^"\\\n]{0,40}"/
NUMBER: /[0-9]{1,3}/
"""
constraint = fsa_compile.compile_grammar(tool, tokenizer, mode="characters")
walk = constraint.walk()
print("first:", [name for name, i in tokenizer.vocabulary.special.items() if walk.allowed()[i]])
walk.advance(tokenizer.vocabulary.special["<start_of_turn>"])
for text in ("I may say (anything here. ", "Call: ", "add(item="):
    for token in tokenizer.encode(text):
        walk.advance(token)
    print(f"{text!r:30} {walk.allowed().sum():>5,} tokens allowed")

# %% [markdown]
# ## Counters
#
# A large bound such as `{1,5000}` is not written out: a register counts, and the tables do not grow with it. (Small ones are written out.)

# %%
for most in (50, 500, 5000):
    counted = fsa_compile.compile_regex(rf"[a-z ]{{1,{most}}}\.", tokenizer)
    print(f"{most:5} characters: {counted.num_nodes:,} nodes, {counted.nbytes / 1e3:,.0f} kB")

# %% [markdown]
# From a shell, `fsa-compile compile --grammar FILE` and `fsa-compile check` do the same; `library:json` names a grammar of the library.
