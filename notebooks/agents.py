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
# # Agents: tools, thinking, and a loop that goes on
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/constrax/constrax/blob/main/notebooks/agents.ipynb)
#
# A chat model asks for functions in tokens of its own. **constrax** compiles the whole turn (thinking, then an answer or calls whose arguments obey
# the functions' types), reads it back, and the calls are run. The model here is small, 1.5 million parameters, and was trained for minutes on a CPU
# to write two protocols: Gemma 4's and Qwen 3's.

# %%
import sys

if "google.colab" in sys.modules:
    import subprocess

    package = "constrax[all,notebooks] @ git+https://github.com/constrax/constrax"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package], check=True)

# %%
import random
from typing import Annotated, Literal

import jax
import matplotlib.pyplot as plt

import constrax
import fsa_compile
import jax_decode
import models
from fsa_compile import draw
from fsa_compile.python_types import Ge, Le, Pattern

plt.rcParams.update(draw.STYLE)  # the colours of the library's pictures

jax_decode.keep_programs()  # on disk, so that the next run of this notebook compiles nothing
decoder, path = models.load_small_agent(), models.small_agent_tokenizer_path()
agents = {
    protocol: constrax.load(decoder, tokenizer=path, template=models.small_agent_template(protocol))
    for protocol in ("gemma4", "qwen3")
}

# %% [markdown]
# ## The tools are Python functions
#
# Their signatures become schemas: an operation out of three, days from 1 to 14, addresses that look like one.

# %%
weather = {"Oslo": "snow, -4 degrees", "Rome": "sunny, 27 degrees", "Lima": "fog, 17 degrees"}
outbox = []


def get_weather(city: str, days: Annotated[int, Ge(1), Le(14)] = 1) -> str:
    """The weather in a city."""
    return weather.get(city, "cloudy, 11 degrees")


def calculate(operation: Literal["add", "subtract", "multiply"], left: int, right: int) -> int:
    """A sum."""
    return {"add": left + right, "subtract": left - right, "multiply": left * right}[operation]


def find_email(name: str) -> str:
    """Somebody's address."""
    return f"{name.lower()}@mail.org"


def send_mail(to: Annotated[str, Pattern(r"[a-z._0-9]+@[a-z.]+")], text: str) -> str:
    """Sends a mail."""
    outbox.append((to, text))
    return "sent"


tools = [get_weather, calculate, find_email, send_mail]

# %% [markdown]
# ## One turn
#
# `respond` gives what the model thought and the calls, which have not been run yet. Calling one runs the function.

# %%
turn = agents["gemma4"].respond("How is the weather in Oslo?", tools=tools, protocol="gemma4", max_new_tokens=128)
print(turn.reasoning)
print([call.name for call in turn.calls], [call.arguments for call in turn.calls], [call() for call in turn.calls])

# %% [markdown]
# What the model wrote are ids of special tokens and of text. The picture has the masks of a few steps: behind `call:` only names of tools, behind a
# name only its arguments.

# %%
tokenizer = fsa_compile.load_tokenizer(path)
constraint = fsa_compile.compile_response(tokenizer, protocol="gemma4", tools=tools, tool_choice="required", reasoning="off")
written = '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:2}<tool_call|>'
ids = fsa_compile.chat_prompt([{"role": "user", "content": ""}], tokenizer, template=written).ids
walk, masks = constraint.walk(), []
for token in ids:
    masks.append(walk.allowed())
    walk.advance(token)
draw.plot_mask(masks, tokenizer, ids=ids)
plt.show()

# %% [markdown]
# ## The loop
#
# What the calls give goes into the next prompt, until the model answers. To write to somebody it needs an address first: two tools, one after the
# other.


# %%
def converse(protocol, question, most=5):
    messages = [{"role": "user", "content": question}]
    print(f"{protocol}: {question}")
    for _ in range(most):
        turn = agents[protocol].respond(messages, tools=tools, protocol=protocol, max_new_tokens=128)
        if turn.reasoning:
            print("    thinks ", turn.reasoning)
        messages.append(turn.message)
        if not turn.calls:
            print("    answers", turn.content)
            return turn.content
        for call in turn.calls:
            result = call()
            print(f"    calls   {call.name}({call.arguments}) gave {result!r}")
            messages.append(call.answered(result))


for protocol in agents:
    for question in (
        "What is 37 times 8?",
        "How is the weather in Oslo and in Rome?",
        "Tell Clara that the train is 12 minutes late.",
        "Hello, I am Ruth.",
    ):
        converse(protocol, question)
print("sent:", outbox)

# %% [markdown]
# ## Without and with the constraint
#
# At temperature 1.3 a small model errs: marks are left out, numbers stand in quotes, names of tools are invented. Inside the constraint every turn can be
# read, and every call can be run.

# %%
questions = random.Random(3)
asked = [f"What is {questions.randint(2, 99)} {sign} {questions.randint(2, 99)}?" for sign in ("plus", "times") * 4]
asked += [f"Weather in {city} in the next {days} days, please." for city in ("Lyon", "Kyoto") for days in (2, 5)]


given = {protocol: {"protocol": protocol, "tools": tools, "tool_choice": "required"} for protocol in agents}
tables = jax_decode.to_device([fsa_compile.compile_response(tokenizer, **turn) for turn in given.values()])
described = [{"function": {"name": tool.__name__}} for tool in tools]
rows = [(protocol, [{"role": "user", "content": question}]) for protocol in agents for question in asked]
prompts = [
    fsa_compile.chat_prompt(chat, tokenizer, template=models.small_agent_template(protocol), tools=described)
    for protocol, chat in rows
]
stops = {stop for protocol in agents for stop in fsa_compile.protocols.stop_ids(tokenizer, protocol)}


def shares(constrained):
    """By protocol, the share of turns whose calls can be read and run; both protocols are rows of one batch."""
    out = jax_decode.generate(
        decoder,
        [prompt.ids for prompt in prompts],
        tables,
        key=jax.random.key(0),
        constraint=[list(agents).index(protocol) if constrained else None for protocol, _ in rows],
        sampler=jax_decode.Categorical(1.3),
        max_new_tokens=128,
        stop_ids=sorted(stops),
    )
    run = dict.fromkeys(agents, 0)
    for (protocol, _), tokens in zip(rows, out.tokens):
        try:
            calls = fsa_compile.parse_response(tokens.tolist(), tokenizer, **given[protocol]).calls
            run[protocol] += bool(calls) and all(call() is not None for call in calls)
        except fsa_compile.ConstraintError:
            pass  # no turn of the protocol
    return {protocol: count / len(asked) for protocol, count in run.items()}


free, inside = shares(False), shares(True)
found = {protocol: (free[protocol], inside[protocol]) for protocol in agents}
for protocol, (free, inside) in found.items():
    print(f"{protocol:8} calls that run: without {free:.0%}, inside {inside:.0%}")
figure, axes = plt.subplots(figsize=(5, 2.4))
for place, (label, colour) in enumerate((("without a constraint", draw.LINE), ("inside", draw.ACCENT))):
    axes.barh([row + 0.35 * place for row in range(len(found))], [pair[place] for pair in found.values()], 0.33, label=label, color=colour)
axes.set_yticks([row + 0.175 for row in range(len(found))], list(found))
axes.set_xlabel("share of turns whose calls run")
axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
plt.show()
