"""`LanguageModel`: a prompt and what the answer shall be, to the answer.

It owns what a constrained text needs besides: the id that starts a text, the ids that end it, compiled constraints and their
tables, and the way from text to value. Everything is done by the packages below; nothing is decided here that they could decide.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

import fsa_compile
import jax_decode
from constrax.chats import chat_ids
from constrax.errors import CallError, UseError
from constrax.turns import TurnPlan
from constrax.wanted import Constraint, Each, plan_of, same
from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.artifact.arrays import UNBOUNDED, check_vocabulary
from fsa_compile.errors import is_whole, named_fields, naming, right_name
from jax_decode.decoding.result import Generation
from jax_decode.step.state import Status

_MOST_BYTES = 1 << 29
"""Most bytes of compiled constraints that a model keeps, and as many of tables on the device."""
_LIMIT = 256
TRIGGER = "<tool_call>"
"""What begins a call in the answer of a chat with tools."""
_ENDED_BADLY = {
    Status.NOT_A_NUMBER: ("the model gave NaN for every token that could be taken", "Check its parameters and dtype."),
    Status.DEAD_END: ("a token was taken that the constraint forbids", "Please report it: this is a defect."),
}


@dataclasses.dataclass(frozen=True)
class _Asked:
    """Checked prompts with their constraints.

    Attributes:
      ids: token ids of each prompt, the id that starts a text among them.
      constraints: of each prompt, None for free text.
      single: whether one prompt was given by itself.
      stop_ids: more ids that end a text.
    """

    ids: list[list[int]]
    constraints: list[Constraint | None]
    single: bool
    stop_ids: tuple[int, ...] = ()


@named_fields
class LanguageModel:
    """A model with its tokenizer, made by `constrax.load`.

    Args:
      decoder: see `jax_decode.Decoder`.
      tokenizer: from `fsa_compile.load_tokenizer`.
      template: see `constrax.load`.

    Attributes:
      decoder, tokenizer, template: as given.

    Threads may share one.
    """

    def __init__(self, decoder: Any, tokenizer: Any, *, template: str | None = None) -> None:
        self.decoder, self.tokenizer, self.template = decoder, tokenizer, template
        self._constraints: SizedMemo[Constraint] = SizedMemo(_MOST_BYTES, lambda made: made.artifact.nbytes, largest=_MOST_BYTES)
        self._tables: SizedMemo[Any] = SizedMemo(_MOST_BYTES, lambda tables: tables.nbytes, largest=_MOST_BYTES)

    def __repr__(self) -> str:
        return f"LanguageModel({self.decoder!r}, {self.tokenizer!r})"

    @naming(CallError, "lm")
    def __call__(
        self,
        prompt: Any,
        wanted: Any = None,
        *,
        samples: int | None = None,
        max_new_tokens: Any = None,
        temperature: float | None = None,
        seed: int = 0,
        sampler: Any = None,
    ) -> Any:
        """Continues a prompt with a text of the wanted kind, and reads it.

        Args:
          prompt: a text, or a list of texts.
          wanted: what the answer shall be: a pattern, a list of strings, a JSON Schema (dict), a type, a function to call, a
            `Grammar`, a `Language`, a compiled constraint; None for free text. `Each(...)` has one for every prompt of a list.
          samples: None for one answer to each prompt, n for a list of n.
          max_new_tokens: most tokens of an answer, one number or one per prompt. Constrained answers are complete within it.
            None: 256, or twice what the constraint's shortest text needs.
          temperature: 0 takes the most probable token; the default with one answer. 1 is the default with several.
          seed: of the draws; the same seed gives the same answers.
          sampler: `jax_decode.TopK(...)` or another, in place of `temperature`.

        Returns:
          What `wanted` says: a value of the type, the JSON value of the schema, a `Call` of a function, else the text. A list for
          a list of prompts; with `samples`, a list of that length for every prompt.

        Raises:
          UseError: an argument is wrong; says what to write.
          ConstraintError: `wanted` cannot be enforced; says where, and what to do.
          DecodeError: the limit is below the shortest text, or the prompt is too long for the model.

        Examples:
          >>> lm("Bio: Ada Lovelace was born in 1815 in London.\\nJSON: ", Person)
          Person(name='Ada Lovelace', born=1815)
        """
        asked = self._asked(prompt, wanted)
        options = self._options(asked, samples, max_new_tokens, temperature, seed, sampler)
        return self._values(asked, self._generated(asked, options), samples)

    @naming(CallError, "lm.chat")
    def chat(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        wanted: Any = None,
        *,
        tools: Sequence[Callable[..., Any]] | None = None,
        samples: int | None = None,
        max_new_tokens: int | None = None,
        temperature: float | None = None,
        seed: int = 0,
        sampler: Any = None,
        **variables: Any,
    ) -> Any:
        """The assistant's answer in a conversation.

        Args:
          messages: dicts with "role" and "content", oldest first; a string is one message of the user's.
          wanted, samples, max_new_tokens, temperature, seed, sampler: as for a prompt.
          tools: functions that the answer may call. They are described to the model, and the answer is a text, or a text and a
            call behind it. To demand a call, pass the functions as `wanted`.
          variables: more values for the chat template, such as `enable_thinking=False`.

        Returns:
          As for a prompt; with tools a string, or a `Call`: its `function`, `arguments` and `text`; calling it runs the function.

        Raises:
          ChatTemplateError: the tokenizer has no chat template; pass `template=` to `constrax.load`.
          UseError, ConstraintError, DecodeError: see `__call__`.
        """
        _check_variables(variables)
        if tools is not None and wanted is not None:
            raise UseError("'tools' and 'wanted' were given together", fix="Give tools for text or a call, wanted for one form.")
        if tools is not None:
            wanted = self.compile(list(tools), trigger=TRIGGER)
        prompt = chat_ids(messages, self.tokenizer, self.template, tools, TRIGGER, variables)
        asked = _Asked([prompt.ids], [self.compile(wanted)], True, prompt.stop_ids)
        options = self._options(asked, samples, max_new_tokens, temperature, seed, sampler)
        return self._values(asked, self._generated(asked, options), samples)

    @naming(CallError, "lm.respond")
    def respond(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        wanted: Any = None,
        *,
        tools: Sequence[Callable[..., Any]] | None = None,
        protocol: Any = None,
        reasoning: str = "allowed",
        max_new_tokens: int | None = None,
        temperature: float | None = None,
        seed: int = 0,
        **variables: Any,
    ) -> fsa_compile.Response:
        """The assistant's whole turn in its model's own tokens: thinking, then an answer or calls of tools.

        Args:
          messages: as for `chat`.
          wanted: what an answer is: a JSON Schema (dict), a type, a pattern; None for text.
          tools: functions that the turn may call, or descriptions of tools.
          protocol: how the model writes a turn, a name of `fsa_compile.PROTOCOLS`; None: what special tokens and template tell.
          reasoning: see `fsa_compile.compile_response`.
          max_new_tokens, temperature, seed: as for a prompt.
          variables: more values for the chat template.

        Returns:
          `reasoning`, `content` and `calls`; a call of a function is run by calling it.

        Raises:
          ConstraintError: the request cannot be enforced, or nothing tells the protocol.
          ChatTemplateError, UseError, DecodeError: see `chat`.
        """
        _check_variables(variables)
        plan = TurnPlan.of(self.tokenizer, protocol, tools, wanted, reasoning)
        prompt = chat_ids(messages, self.tokenizer, self.template, tools, "", variables, plan.example())
        stops = tuple(sorted({*prompt.stop_ids, *plan.stop_ids(self.tokenizer)}))
        asked = _Asked([prompt.ids], [Constraint(plan.compiled(self.tokenizer), same, "turn")], True, stops)
        out = self._generated(asked, self._options(asked, None, max_new_tokens, temperature, seed, None))
        self._check_ended(out.status[0], 0)
        return plan.read(out.tokens[0].tolist(), self.tokenizer)

    @naming(CallError, "lm.stream")
    def stream(
        self,
        prompt: Any,
        wanted: Any = None,
        *,
        stop: str | Sequence[str] = (),
        max_new_tokens: int | None = None,
        temperature: float | None = None,
        seed: int = 0,
        sampler: Any = None,
        **options: Any,
    ) -> TextStream:
        """The answer to one prompt, piece by piece while it is written.

        Args:
          prompt: a text.
          wanted, max_new_tokens, temperature, seed, sampler: as for a call.
          stop: strings; the text ends before the first of them.
          options: more of `jax_decode.stream`, such as `chunk=` or `stopping=`.

        Returns:
          An iterator of strings; `value` reads the answer when it is complete.

        Examples:
          >>> for piece in lm.stream("Title: The red kettle\\nStory: "):
          ...     print(piece, end="", flush=True)
        """
        if not isinstance(prompt, str):
            fix = "For several use jax_decode.stream(lm.decoder, ...), whose pieces say which row they belong to."
            raise UseError(f"a stream is of one prompt, a str, not {type(prompt).__name__}", fix=fix)
        asked = self._asked(prompt, wanted)
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        rules = [jax_decode.StopStrings(*stops)] if stops else []
        more = options.pop("stopping", ())
        rules += list(more) if isinstance(more, Sequence) else [more]
        keywords = self._options(asked, None, max_new_tokens, temperature, seed, sampler) | options
        pieces = jax_decode.stream(
            self.decoder, asked.ids, self._tables_of(asked), tokenizer=self.tokenizer, stopping=rules, **keywords
        )
        return TextStream(pieces, _reader(asked.constraints[0]))

    @naming(CallError, "lm.generate")
    def generate(self, prompt: Any, wanted: Any = None, *, max_new_tokens: Any = None, **options: Any) -> Generation:
        """Everything underneath: tokens, status, log-probabilities and work of every row.

        Args:
          prompt, wanted, max_new_tokens: as for a call.
          options: of `jax_decode.generate`: `sampler=`, `key=` (by default `jax.random.key(0)`), `num_samples=`, `draft=`, ...

        Returns:
          The rows.
        """
        asked = self._asked(prompt, wanted)
        defaults = {"max_new_tokens": _limit(asked, max_new_tokens), "key": jax.random.key(0)}
        return self._generated(asked, defaults | self._ids(asked) | options)

    @naming(CallError, "lm.compile")
    def compile(self, wanted: Any, **options: Any) -> Constraint | None:
        """What the answer shall be, compiled: to keep, to look at, or to compile with options.

        Args:
          wanted: as for a call.
          options: of the compile function that belongs to it, such as `canonical=True`, `filters=[...]`, `style="python"`.

        Returns:
          A constraint that can be given in place of `wanted`; its `artifact` is the `CompiledConstraint`. None for None.
        """
        if wanted is None:
            return None
        if isinstance(wanted, Constraint | fsa_compile.CompiledConstraint | fsa_compile.CompiledItems):
            if options:
                what = "options were given for a constraint that is compiled already"
                raise UseError(what, fix="Give them when it is compiled.")
            made = wanted if isinstance(wanted, Constraint) else Constraint(wanted, same, "compiled")
            if isinstance(made.artifact, fsa_compile.CompiledConstraint):
                check_vocabulary(made.artifact, self.tokenizer)
            return made
        plan = plan_of(wanted)
        try:
            key = None if plan.key is None else (plan.key, tuple(sorted(options.items())))
            hash(key)
        except TypeError:
            key = None
        make = functools.partial(plan.made, self.tokenizer, options)
        return make() if key is None else self._constraints.get(key, make)

    def _asked(self, prompt: Any, wanted: Any) -> _Asked:
        fix = "Give a str, or a list of them. For a conversation use lm.chat(messages, ...)."
        single = isinstance(prompt, str)
        prompts = [prompt] if single else prompt
        if isinstance(prompts, (bytes, Mapping)) or not isinstance(prompts, Sequence):
            raise UseError(f"the prompt is {type(prompt).__name__}, not text", fix=fix)
        if not prompts:
            raise UseError("there is no prompt", fix=fix)
        for place, one in enumerate(prompts):
            if not isinstance(one, str):
                raise UseError(f"a prompt is a str, not {type(one).__name__}", where=f"prompt {place}", fix=fix)
        if isinstance(wanted, Each):
            if single or len(wanted.wanted) != len(prompts):
                what = f"Each(...) has {len(wanted.wanted)} constraints for {len(prompts)} prompt{'s' * (len(prompts) != 1)}"
                raise UseError(what, fix="Give a list of prompts, and one constraint for each.")
            constraints = [self.compile(one) for one in wanted.wanted]
        else:
            constraints = [self.compile(wanted)] * len(prompts)
        return _Asked([self._encoded(one) for one in prompts], constraints, single)

    def _encoded(self, prompt: str) -> list[int]:
        """A prompt's ids, behind the id that starts a text."""
        bos = self.tokenizer.vocabulary.bos_id
        return [*([] if bos is None else [bos]), *self.tokenizer.encode(prompt)]

    def _options(self, asked: _Asked, samples: Any, limit: Any, temperature: Any, seed: Any, sampler: Any) -> dict[str, Any]:
        if samples is not None and not is_whole(samples, 1):
            raise UseError(f"samples={samples!r}", fix="Give a whole number of at least 1, or leave it out for one answer.")
        if not is_whole(seed, -(1 << 63), (1 << 63) - 1):
            raise UseError(f"seed={seed!r} is no whole number", fix="For a PRNG key of your own use lm.generate(..., key=key).")
        return {
            "max_new_tokens": _limit(asked, limit),
            "sampler": _sampler(samples, temperature, sampler),
            "num_samples": samples or 1,
            "key": jax.random.key(seed),
            **self._ids(asked),
        }

    def _ids(self, asked: _Asked) -> dict[str, Any]:
        """Which constraint each row has, and what ends it."""
        which: list[int | None] = []
        for constraint in asked.constraints:
            which.append(None if constraint is None else _distinct(asked).index(constraint))
        stops = sorted({*self.tokenizer.vocabulary.stop_ids, *asked.stop_ids})
        if not any(constraint is not None for constraint in asked.constraints):
            return {"stop_ids": stops}
        return {"constraint": which, "stop_ids": stops}

    def _tables_of(self, asked: _Asked) -> Any:
        constraints = tuple(_distinct(asked))
        if not constraints:
            return None
        return self._tables.get(constraints, lambda: self._made_tables(constraints))

    def _made_tables(self, constraints: tuple[Constraint, ...]) -> Any:
        artifacts = [constraint.artifact for constraint in constraints]
        canonical = any(getattr(artifact, "is_canonical", False) for artifact in artifacts)
        tables = fsa_compile.canonical_tables(self.tokenizer) if canonical else None
        return jax_decode.to_device(artifacts, canonical=tables, logits_width=self.decoder.vocab_size)

    def _generated(self, asked: _Asked, options: dict[str, Any]) -> Generation:
        prompts = asked.ids[0] if asked.single else asked.ids
        return jax_decode.generate(self.decoder, prompts, self._tables_of(asked), tokenizer=self.tokenizer, **options)

    @staticmethod
    def _check_ended(status: Status, prompt: int) -> None:
        """Raises `UseError` for a text that ended otherwise than it should."""
        if status in _ENDED_BADLY:
            what, fix = _ENDED_BADLY[status]
            raise UseError(what, where=f"prompt {prompt}", fix=fix)

    def _values(self, asked: _Asked, out: Generation, samples: int | None) -> Any:
        each, texts = samples or 1, out.text()
        texts = [texts] if isinstance(texts, str) else texts
        values = []
        for row, (status, text) in enumerate(zip(out.status, texts)):
            self._check_ended(status, row // each)
            values.append(_reader(asked.constraints[row // each])(text))
        if samples is None:
            return values[0] if asked.single else values
        grouped = [values[first : first + each] for first in range(0, len(values), each)]
        return grouped[0] if asked.single else grouped


class TextStream:
    """An iterator over the pieces of one text, made by `LanguageModel.stream`.

    Attributes:
      text: what was written so far.
    """

    def __init__(self, pieces: Any, read: Callable[[str], Any]) -> None:
        self._pieces, self._read = pieces, read
        self.text = ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not (piece := next(self._pieces)).text:
            pass
        self.text += piece.text
        return piece.text

    @property
    def value(self) -> Any:
        """The answer, read; what is not written yet is written first."""
        for _ in self:
            pass
        return self._read(self.text)

    @property
    def result(self) -> Generation:
        """Tokens, status and log-probabilities so far."""
        return self._pieces.result


def _check_variables(variables: Mapping[str, Any]) -> None:
    """Raises `CallError` for values of a template whose names are those of arguments elsewhere, or nearly ours."""
    known = [*inspect.signature(LanguageModel.chat).parameters, "protocol", "reasoning"]
    for name, value in variables.items():
        if right := right_name(name, value, known):
            what = f"{name!r} is no argument of a chat, and would go to the chat template as a variable"
            raise CallError(what, fix=f"Write {right}.")


def _distinct(asked: _Asked) -> list[Constraint]:
    """The constraints in the order of the prompts, each once."""
    return list(dict.fromkeys(constraint for constraint in asked.constraints if constraint is not None))


def _reader(constraint: Constraint | None) -> Callable[[str], Any]:
    return same if constraint is None else constraint.read


def _limit(asked: _Asked, given: Any) -> Any:
    """The limit as given, or one that every constraint fits twice."""
    if given is not None:
        return given
    shortest = [int(c.artifact.shortest_completion) for c in _distinct(asked)]
    return max(_LIMIT, *(2 * length for length in shortest if length < UNBOUNDED), 0)


def _sampler(samples: int | None, temperature: Any, sampler: Any) -> Any:
    if sampler is not None:
        if temperature is not None:
            raise UseError("'sampler' and 'temperature' were given together", fix="Write jax_decode.TopK(40, temperature).")
        return sampler
    if temperature is None:
        return jax_decode.Greedy() if samples is None else jax_decode.Categorical()
    if temperature == 0:
        if (samples or 1) > 1:
            raise UseError(f"{samples} samples at temperature 0 are one text {samples} times", fix="Raise the temperature.")
        return jax_decode.Greedy()
    return jax_decode.Categorical(temperature)
