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
# # Structured output: schemas, types, tools
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/constrax/constrax/blob/main/notebooks/structured_output.ipynb)
#
# Programs want values, not text. **constrax** compiles a JSON Schema, a dataclass, a pydantic model or the signature of a function, and reads
# the text back: what the model writes is always a value of the type. This notebook runs on a CPU in less than a minute.

# %%
import sys

if "google.colab" in sys.modules:
    import subprocess

    package = "constrax[all,notebooks] @ git+https://github.com/constrax/constrax"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package, "pydantic"], check=True)

# %%
import dataclasses
import datetime
import json
from typing import Annotated, Literal

import jax
from pydantic import BaseModel, Field

import fsa_compile
import jax_decode
import models
from fsa_compile import draw, draw_grammar
from fsa_compile.python_types import Ge, Le, Pattern

jax_decode.keep_programs()  # on disk, so that the next run of this notebook compiles nothing
tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
decoder = models.load_small()
bos, stops = tokenizer.vocabulary.bos_id, list(tokenizer.vocabulary.stop_ids)


def write(prompt, constraint=None, temperature=0.7, n=1, seed=0, max_new_tokens=110):
    out = jax_decode.generate(
        decoder,
        tokenizer.encode(prompt),
        None if constraint is None else jax_decode.to_device(constraint),
        key=jax.random.key(seed),
        sampler=jax_decode.Categorical(temperature),
        num_samples=n,
        max_new_tokens=max_new_tokens,
        bos_id=bos,
        **({"stop_ids": stops} if constraint is None else {}),
    )
    texts = out.text(tokenizer)
    return [texts] if isinstance(texts, str) else texts


# %% [markdown]
# ## A JSON Schema
#
# Every keyword is enforced exactly, or the schema is refused with the place of the keyword.

# %%
schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]+( [A-Z][a-z]+)+$"},
        "born": {"type": "integer", "minimum": 1700, "maximum": 2026},
        "city": {"type": "string", "maxLength": 20},
        "occupation": {"type": "string", "maxLength": 30},
    },
    "required": ["name", "born", "city"],
    "additionalProperties": False,
}
biography = fsa_compile.compile_json_schema(schema, tokenizer)
prompt = "Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.\nJSON: "
for text in write(prompt, biography, n=3):
    print(json.loads(text))

# %% [markdown]
# ## A dataclass
#
# `compile_type` takes the type itself, and `parse` gives an object back. Marks inside `Annotated` are enforced while the text is
# written: here a price has at least 0.01, and dates exist.


# %%
@dataclasses.dataclass
class Item:
    product: Annotated[str, Pattern(r"[a-z]+( [a-z]+)*")]
    quantity: Annotated[int, Ge(1), Le(99)]
    price: Annotated[float, Ge(0.01)]


@dataclasses.dataclass
class Order:
    customer: str
    items: list[Item]
    date: datetime.date


order_prompt = "Order: On 5 March 2024 Boris Kaplan ordered 2 steel kettles at 24.50 each and 1 red lamp for 18.99.\nJSON: "
orders = fsa_compile.compile_type(Order, tokenizer)
text = write(order_prompt, orders)[0]
print(text)
fsa_compile.parse(Order, text)

# %% [markdown]
# The small model at a high temperature, without and with the constraint. A row matches when it reads as an `Order`:


# %%
def is_order(text):
    try:
        fsa_compile.parse(Order, text)
    except fsa_compile.TypeTextError:
        return False
    return True


for name, constraint in (("without", None), ("with", orders)):
    print(name)
    for text in write(order_prompt, constraint, temperature=1.3, n=8, seed=1):
        print("   ", "matches   " if is_order(text) else "no match  ", repr(text if len(text) < 90 else text[:89] + "…"))

# %% [markdown]
# Lists of objects need a stack. Here it is along the canonical text of a value (`dump` writes it, for instance for the examples in a prompt):

# %%
value = Order("Ada", [Item("red lamp", 1, 18.99)], datetime.date(2024, 3, 5))
shown = fsa_compile.dump(Order, value)
draw_grammar.plot_stack(orders, tokenizer, tokenizer.encode(shown));

# %% [markdown]
# ## The same as Python
#
# `style="python"` writes constructor calls. They are read with `ast`; nothing is run.

# %%
calls = fsa_compile.compile_type(Order, tokenizer, style="python")
print(fsa_compile.dump(Order, value, style="python"))
text = write(order_prompt, calls, temperature=0.9)[0]
print(text)
fsa_compile.parse(Order, text, style="python")

# %% [markdown]
# Small types have small automata: this one is all of `Literal["yes", "no"] | None`.

# %%
draw.plot_automaton(fsa_compile.compile_type(Literal["yes", "no"] | None, tokenizer), tokenizer);


# %% [markdown]
# ## A pydantic model
#
# Fields keep their aliases and conditions. What cannot be known before the value is complete is refused, with the place.


# %%
class Person(BaseModel):
    name: str = Field(max_length=30)
    born: int = Field(ge=1700, le=2026)
    city: str = Field(pattern="^[A-Z]")
    occupation: str | None = None


people = fsa_compile.compile_type(Person, tokenizer)
print(repr(fsa_compile.parse(Person, write(prompt, people)[0])))


class Odd(BaseModel):
    codes: set[Annotated[str, Field(pattern=r"\W")]]


try:
    fsa_compile.compile_type(Odd, tokenizer)
except fsa_compile.UnsupportedTypeError as error:
    print(error)

# %% [markdown]
# ## Functions as tools
#
# `compile_call` reads signatures. `parse_call` gives a call that has not been run yet: its function, its arguments, and calling it runs it.


# %%
def set_timer(minutes: Annotated[int, Ge(1), Le(600)]):
    return f"timer for {minutes} minutes"


def add_item(name: Annotated[str, Pattern(r"[a-z ]+")]):
    return f"{name} is on the list"


def get_weather(city: str, day: Literal["today", "tomorrow"] = "today"):
    return f"sun in {city} {day}"


tools = [set_timer, add_item, get_weather]
constraint = fsa_compile.compile_call(tools, tokenizer, style="python")
for request in ("Set a timer for 10 minutes.", "Put a yellow stool on the shopping list.", "What is the weather in Porto?"):
    text = write(f"Request: {request}\nCall: ", constraint)[0]
    call = fsa_compile.parse_call(tools, text, style="python")
    print(f"{text:32} → {call()}")

# %% [markdown]
# With a trigger the model may answer in text, or call: where the trigger occurs first, a call must follow.

# %%
either = fsa_compile.compile_call(tools, tokenizer, style="json", trigger="<tool_call>")
for text in ("It is sunny.", 'Wait. <tool_call>{"name": "get_weather", "arguments": {"city": "Porto"}}'):
    walk = either.walk()
    for token in tokenizer.encode(text):
        walk.advance(token)
    print(walk.accepting, repr(fsa_compile.parse_call(tools, text, trigger="<tool_call>")))
