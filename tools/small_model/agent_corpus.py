"""Conversations with tools for the small agent: a question, calls, what they gave, an answer.

One responsibility: text. The prompts come from the templates that are shipped; the turns are written after the two protocols.
"""

import dataclasses
import json
import random
from collections.abc import Callable
from typing import Any

from tools.small_model import corpus, corpus_words

TOOLS = ("get_weather", "calculate", "find_email", "send_mail")
WEATHER = ("sunny", "rain", "cloudy", "snow", "windy", "fog")
_SIGNS = {"add": "plus", "subtract": "minus", "multiply": "times"}


@dataclasses.dataclass(frozen=True)
class Turn:
    """A turn of the assistant: thought, calls, what they gave; or an answer."""

    thought: str = ""
    content: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    results: tuple[str, ...] = ()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The turn and the tools' answers as the next prompt has them."""
        calls = [{"type": "function", "function": {"name": name, "arguments": given}} for name, given in self.calls]
        own = {"role": "assistant", "content": self.content, **({"tool_calls": calls} if calls else {})}
        told = [{"role": "tool", "name": name, "content": said} for (name, _), said in zip(self.calls, self.results)]
        return [own, *told]

    def written(self, protocol: str) -> str:
        """The text of the turn with the token that ends it."""
        return _WRITERS[protocol](self)


def _gemma4(turn: Turn) -> str:
    def value(given: Any) -> str:
        return f'<|"|>{given}<|"|>' if isinstance(given, str) else str(given)

    out = f"<|channel>thought\n{turn.thought}\n<channel|>" if turn.thought else ""
    out += turn.content
    for name, given in turn.calls:
        out += f"<|tool_call>call:{name}{{{','.join(f'{key}:{value(given[key])}' for key in sorted(given))}}}<tool_call|>"
    return out + ("<|tool_response>" if turn.calls else "<turn|>")


def _qwen3(turn: Turn) -> str:
    out = f"<think>\n{turn.thought}\n</think>\n\n" if turn.thought else ""
    written = [{"name": name, "arguments": given} for name, given in turn.calls]
    calls = [f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in written]
    return out + turn.content + "\n".join(calls) + "<|im_end|>"


_WRITERS: dict[str, Callable[[Turn], str]] = {"gemma4": _gemma4, "qwen3": _qwen3}


def _weather(rng: random.Random, held_out: bool) -> tuple[str, list[Turn]]:
    cities = [corpus_words.city(rng, held_out) for _ in range(rng.choice((1, 1, 2)))]
    days = rng.choice((1, 1, 1, 2, 3, 5, 7))
    span = "" if days == 1 else f" in the next {days} days"
    where = " and in ".join(cities)
    asked = rng.choice((
        f"How is the weather in {where}{span}?", f"What will the weather be in {where}{span}?",
        f"Weather in {where}{span}, please.",
    ))  # fmt: skip
    said = [f"{rng.choice(WEATHER)}, {rng.randint(-9, 38)} degrees" for _ in cities]
    calls = tuple(("get_weather", {"city": city, "days": days}) for city in cities)
    answer = " ".join([f"{city}: {one}." for city, one in zip(cities, said)])
    return asked, [Turn(thought=f"I look up the weather in {where}.", calls=calls, results=tuple(said)), Turn(content=answer)]


def _calculation(rng: random.Random, held_out: bool) -> tuple[str, list[Turn]]:
    left, right, operation = rng.randint(2, 99), rng.randint(2, 99), rng.choice(list(_SIGNS))
    result = {"add": left + right, "subtract": left - right, "multiply": left * right}[operation]
    sum_ = f"{left} {_SIGNS[operation]} {right}"
    asked = rng.choice((f"What is {sum_}?", f"How much is {sum_}?", f"Please compute {sum_}."))
    given = {"left": left, "operation": operation, "right": right}
    turn = Turn(thought=f"I compute {sum_}.", calls=(("calculate", given),), results=(str(result),))
    return asked, [turn, Turn(content=f"{sum_} is {result}.")]


def _mail(rng: random.Random, held_out: bool) -> tuple[str, list[Turn]]:
    name = corpus_words.given_name(rng, held_out)
    thing = rng.choice(corpus_words.GOODS)
    news = rng.choice((
        f"the {thing} is {rng.choice(('ready', 'broken', 'here', 'sold', 'late'))}",
        f"we meet at {rng.randint(1, 12)} o'clock", f"the train is {rng.randint(2, 59)} minutes late",
        f"I need {rng.randint(2, 20)} more of the {thing}", f"the meeting is in {corpus_words.city(rng, held_out)}",
    ))  # fmt: skip
    asked = rng.choice((f"Write to {name} that {news}.", f"Tell {name} that {news}.", f"Send {name} a mail: {news}."))
    mail = f"{corpus._plain(name)}@{rng.choice(corpus_words.MAIL_HOSTS)}.{rng.choice(corpus_words.MAIL_ENDINGS)}"
    found = Turn(thought=f"I need the address of {name}.", calls=(("find_email", {"name": name}),), results=(mail,))
    sent = Turn(thought=f"I write to {mail}.", calls=(("send_mail", {"text": news, "to": mail}),), results=("sent",))
    return asked, [found, sent, Turn(content=f"I wrote to {name} that {news}.")]


def _talk(rng: random.Random, held_out: bool) -> tuple[str, list[Turn]]:
    name = corpus_words.given_name(rng, held_out)
    return rng.choice((
        ("Hello!", [Turn(content="Hello! What can I do for you?")]),
        (f"Hello, I am {name}.", [Turn(content=f"Hello {name}! What can I do for you?")]),
        (f"Thank you, says {name}.", [Turn(content=f"You are welcome, {name}.")]),
    ))  # fmt: skip


_TASKS = (_weather, _weather, _calculation, _calculation, _mail, _mail, _mail, _talk)


def conversation(rng: random.Random, held_out: bool = False) -> tuple[str, list[Turn]]:
    """What a user asks, and the assistant's turns. Held-out ones have names that training has not seen."""
    return rng.choice(_TASKS)(rng, held_out)
