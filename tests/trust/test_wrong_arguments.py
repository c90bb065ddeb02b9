"""Odd values in place of each argument of public functions, one at a time: a result, or an error of ours, never another exception."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import operator
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.toy_decoder import toy

import constrax
import fsa_compile
import jax_decode
import models
from jax_decode import canvas

VOCABULARY = fsa_compile.Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256))], stop_ids=[0])
CONSTRAINT = fsa_compile.compile_regex("(yes|no)!", VOCABULARY)
TABLES = jax_decode.to_device(CONSTRAINT)
DECODER = models.tiny_gemma(vocab_size=257)
STATE = jax_decode.init_state(TABLES, [0], [8])
LOGITS, KEY = jnp.zeros((1, 257)), jax.random.key(0)
WORDS = jax_decode.key_words(KEY[None])
OUT = jax_decode.generate(toy(257), [1], TABLES, max_new_tokens=8, bos_id=False)
SPELLED = jax_decode.to_device(CONSTRAINT, vocabulary=VOCABULARY)
MESH = jax.make_mesh((1,), ("rows",))
CACHE = DECODER.init_cache(1, 4)
POOL = jax_decode.ConstraintPool(VOCABULARY, profile="regular")
CANVAS = canvas.to_canvas(CONSTRAINT)
DENOISED = canvas.Denoised(np.array([[65, 0, 0]], np.int32), np.zeros((1, 3), np.int32), np.zeros((1, 1), np.float32))
SEQUENCES = jax_decode.enumerate_sequences(toy(257), [1], TABLES, max_new_tokens=8, bos_id=False)
SHARES = jax.nn.log_softmax(jnp.zeros((1, 3, 257)))
OURS = (fsa_compile.ConstraintError, jax_decode.DecodeError, constrax.UseError, models.ModelError, OSError)
ODD = (
    None, 5, np.array(5), -1, 2**70, 1.5, float("nan"), "x", "", b"x", bytearray(b"x"), [], [1], [[1]], [None], ["a", 5], {}, {"a": 1}, (), True, object(), type,
    "\0", "\ud800", ["\ud800"], np.zeros(3), np.zeros((2, 2), np.int32), np.array(["a"]), jnp.zeros((0, 257)), range(3), len, CONSTRAINT, TABLES, VOCABULARY, DECODER,
    STATE, jax_decode.Greedy(), KEY, OUT, 10**400, 2**33, range(2**40), [[1], [1, 2]], np.True_, lambda *_: None, jnp.zeros((1,), bool), 1j,
)  # fmt: skip


class _Unregistered:
    vocab_size = 257

    def init_cache(self, rows, length):
        raise NotImplementedError

    def apply(self, *arguments, **options):
        raise NotImplementedError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Fills:
    mask_id: int = dataclasses.field(default=1, metadata={"static": True})

    def __call__(self, prompt, tokens):
        return jnp.zeros((*tokens.shape, 257))


class _Unhashable:
    __hash__ = None

    def __call__(self, cache, kept):
        return cache


def decoder_of(vocab_size=257, rewind_fn=None):
    return jax_decode.FunctionDecoder(len, jnp.zeros(3), len, vocab_size, rewind_fn)


ODD_OBJECTS = (
    _Unregistered(), decoder_of(vocab_size=2.0), decoder_of(rewind_fn=_Unhashable()), jax_decode.Forced("x"), jax_decode.Forced(8, None), jax_decode.Adaptive(nodes=4, reject="no"),
    jax_decode.LookAhead(values="x"), jax_decode.LookAhead(values=[[1], [1, 2]]), jax_decode.LookAhead(slots=2, values=np.array(["a", "b"])),
    jax_decode.Rejection(1.5), jax_decode.PromptLookup(2, share_penalties="no"), jax_decode.PromptLookup(2, ngram=True),
    jax_decode.ModelDraft(None), jax_decode.ModelDraft(DECODER, same_noise=[]), jax_decode.ForcedText("a"), jax_decode.TopK(3, 10**400),
    jax_decode.TopP("x"), jax_decode.MinP(None), jax_decode.Categorical(np.array([1.0, 2.0])), jax_decode.TopK(True),
)  # fmt: skip
"""What is given to a loop, holding what is wrong."""


def streamed(*arguments, **options):
    return list(jax_decode.stream(*arguments, **options))


def entered(function, *arguments, **options):
    with function(*arguments, **options):
        pass


def predicted(**options):
    canvas.ConstrainedPredictions(**options)(
        rng=KEY, denoiser_logits=jnp.zeros((1, 9, 257)), canvas=jnp.zeros((1, 9), jnp.int32), current_noise_proportion=jnp.ones(1),
        target_noise_proportion=jnp.zeros(1),
    )  # fmt: skip


ONE = {"max_new_tokens": 8, "bos_id": False}
CALLS = {
    "init_state": (jax_decode.init_state, [TABLES, [0], [8]], {"stop_ids": [[0]], "max_depth": 9, "max_tokens": 8}),
    "mask": (jax_decode.mask, [TABLES, STATE], {}),
    "mask_words": (jax_decode.mask_words, [TABLES, STATE], {}),
    "only_token": (jax_decode.only_token, [TABLES, STATE], {}),
    "longest_spelling": (jax_decode.longest_spelling, [SPELLED, STATE], {}),
    "mask_logits": (jax_decode.mask_logits, [TABLES, STATE, LOGITS], {}),
    "advance": (jax_decode.advance, [TABLES, STATE, jnp.array([65])], {}),
    "sample": (jax_decode.sample, [jax_decode.Categorical(), LOGITS, WORDS, jnp.zeros(1, jnp.uint32), TABLES, STATE], {"with_raw": True}),
    "key_words": (jax_decode.key_words, [KEY], {}),
    "token_logprobs": (jax_decode.token_logprobs, [SHARES, [[65, 66, 67]], TABLES], {"which": [0], "lengths": [3], "limits": [8], "max_depth": 9}),
    "importance_weights": (jax_decode.importance_weights, [(LOGITS, LOGITS)], {"groups": [0]}),
    "sampled_log_mass": (jax_decode.sampled_log_mass, [(LOGITS, LOGITS)], {}),
    "sharded_rows": (functools.partial(entered, jax_decode.sharded_rows), [MESH, "rows"], {}),
    "export_programs": (functools.partial(entered, jax_decode.export_programs), ["there/is/no/folder"], {}),
    "ConstraintPool": (jax_decode.ConstraintPool, [VOCABULARY], {"profile": "regular", "slots": 4, "logits_width": None, "sharding": None}),
    "pool.check": (POOL.check, [CONSTRAINT], {}),
    "marginals": (canvas.marginals, [CANVAS, SHARES], {"which": None}),
    "log_mass of a canvas": (canvas.log_mass, [CANVAS, SHARES], {"state": None}),
    "sample of a canvas": (canvas.sample, [CANVAS, SHARES, WORDS], {"fixed": None}),
    "proposed": (canvas.proposed, [CANVAS, SHARES, WORDS, [[-1] * 3], [0], 1, 0], {}),
    "ConstrainedPredictions": (predicted, [], {"tables": CANVAS, "text_vocab_size": 257, "entropy_bound": 0.1, "which": 0}),
    "to_device": (jax_decode.to_device, [CONSTRAINT], {"profile": None, "logits_width": None, "canonical": None, "vocabulary": None}),
    "pool.add": (POOL.add, [CONSTRAINT], {}),
    "pool.remove": (POOL.remove, [0], {}),
    "put_row": (jax_decode.put_row, [STATE, 0, STATE], {"source": 0}),
    "take_rows": (jax_decode.take_rows, [STATE, [0]], {}),
    "move_row": (jax_decode.move_row, [STATE, 0, 0], {}),
    "swap_rows": (jax_decode.swap_rows, [STATE, 0, 0], {}),
    "fork": (jax_decode.fork, [STATE, [0]], {}),
    "fork_cache": (jax_decode.fork_cache, [DECODER, CACHE, [0]], {"length": 4}),
    "rewound": (STATE.rewound, [STATE.position], {}),
    "rewind": (jax_decode.rewind, [STATE, STATE.position], {}),
    "TopK": (jax_decode.TopK, [3], {"temperature": 1.0}),
    "TopP": (jax_decode.TopP, [0.5], {"temperature": 1.0}),
    "MinP": (jax_decode.MinP, [0.5], {"temperature": 1.0}),
    "Categorical": (jax_decode.Categorical, [1.0], {}),
    "FunctionDecoder": (jax_decode.FunctionDecoder, [len, 0, len, 257], {"rewind_fn": None}),
    "StepByStep": (jax_decode.StepByStep, [len], {}),
    "StopWhen": (jax_decode.StopWhen, [len], {}),
    "StopStrings": (jax_decode.StopStrings, ["a"], {}),
    "TimeLimit": (jax_decode.TimeLimit, [1.0], {}),
    "load": (constrax.load, [], {"checkpoint": None, "tokenizer": None, "template": None}),
    "draw": (fsa_compile.draw, [CONSTRAINT, VOCABULARY], {"max_nodes": 10, "max_labels": 4}),
    "to_html": (jax_decode.report.to_html, [OUT, VOCABULARY], {"constraint": None}),
    "Matcher": (fsa_compile.Matcher, [CONSTRAINT, VOCABULARY], {"max_tokens": 9, "max_depth": 9}),
    "parse": (fsa_compile.parse, [int, "5"], {}),
    "dump": (fsa_compile.dump, [int, 5], {}),
    "text": (OUT.text, [VOCABULARY], {}),
    "text of canvases": (DENOISED.text, [VOCABULARY], {}),
    "text of sequences": (SEQUENCES.text, [VOCABULARY], {}),
    "tokenizations": (jax_decode.tokenizations, [["ab"], VOCABULARY], {}),
    "log_weights": (jax_decode.log_weights, [OUT], {}),
    "save_orbax": (jax_decode.save_orbax, [CONSTRAINT, "there/is/no/folder\0"], {}),
    "load_orbax": (jax_decode.load_orbax, ["there/is/no/folder"], {"vocabulary": VOCABULARY}),
    "generate": (jax_decode.generate, [DECODER, [1], TABLES], {"constraint": 0, "sampler": None, "tokenizer": None, "stop_ids": None} | ONE),
    "stream": (streamed, [DECODER, [1], TABLES], {"tokenizer": VOCABULARY, "stopping": ()} | ONE),
}  # fmt: skip
SLOW = {"generate", "load", "stream", "proposed", "token_logprobs", "sample", "ConstrainedPredictions"}
ELSEWHERE = {
    "announce_compilation", "keep_programs",  # settings of the process, see `test_profiles` and `test_argument_checks`
    "weighted_rejection",  # for authors of proposals
}  # fmt: skip
"""Public functions that are in no table."""
PROMPTED = [DECODER, [1], TABLES]
ASKED = {"constraint": 0, "stop_ids": None, "max_depth": 9} | ONE
DRAWN = {"key": KEY, "constraint": None, "max_depth": 9} | ONE
LOOPS = {
    "generate": (jax_decode.generate, PROMPTED, {"key": KEY, "sampler": jax_decode.Categorical(), "num_samples": 1, "draft": None, "forced": 0, "tokenizer": None, "chunk": 8, "allow_truncation": False, "raw_logprobs": True, "progress": None} | ASKED),
    "stream": (streamed, PROMPTED, {"tokenizer": VOCABULARY, "stopping": (), "key": KEY, "sampler": jax_decode.Greedy()} | ASKED),
    "beam_search": (jax_decode.beam_search, PROMPTED, {"beams": 2, "num_return": 1, "length_penalty": 0.5, "chunk": 8} | ASKED),
    "sample_without_replacement": (jax_decode.sample_without_replacement, PROMPTED, {"num_samples": 2, "temperature": 1.0} | DRAWN),
    "log_mass": (jax_decode.log_mass, PROMPTED, {"samples": 8, "always_stop": True, "max_prefixes": 9, "ignore_below": 0.0} | DRAWN),
    "generate_smc": (jax_decode.generate_smc, PROMPTED, {"particles": 2, "resample_below": 0.5, "proposal": jax_decode.Masked(), "always_stop": True} | DRAWN),
    "generate_exact": (jax_decode.generate_exact, PROMPTED, {"method": jax_decode.Adaptive(), "memory": None, "rows": 4, "max_rounds": 9, "always_stop": True} | DRAWN),
    "score_texts": (jax_decode.score_texts, [DECODER, [1], ["yes!"], VOCABULARY], {"tables": TABLES, "key": KEY, "samples": 8, "constraint": None, "stop_ids": None, "bos_id": False, "max_depth": 9, "always_stop": True, "max_prefixes": 9, "ignore_below": 0.0}),
    "option_probabilities": (jax_decode.option_probabilities, [*PROMPTED, VOCABULARY], {"options": ["yes!"], "samples": 8, "always_stop": True, "max_prefixes": 9, "ignore_below": 0.0} | DRAWN),
    "enumerate_sequences": (jax_decode.enumerate_sequences, PROMPTED, {"always_stop": True, "max_prefixes": 9, "ignore_below": 0.0} | ASKED),
    "score": (jax_decode.score, PROMPTED, {"tokens": [[1, 2]], "texts": None, "tokenizer": None, "always_stop": True, "max_new_tokens": 9, "bos_id": False}),
    "draft_then_constrain": (jax_decode.draft_then_constrain, PROMPTED, {"max_draft_tokens": 2, "bridge": [1], "draft_stop_ids": [2]} | DRAWN),
    "warm_up": (jax_decode.warm_up, [DECODER], {"profile": None, "batch": 1, "prompt": 4, "max_new_tokens": 4, "threads": 1, "quiet": True}),
    "step_report": (jax_decode.step_report, [TABLES], {"batch_size": 1, "logits_width": 257, "dtype": "float32", "max_depth": 9, "repeats": 1}),
    "Engine": (jax_decode.Engine, [DECODER, POOL], {"rows": 2, "max_prompt": 4, "max_new_tokens": 4, "steps": 2, "together": 1, "stop_ids": None, "max_depth": 9}),
    "denoise": (canvas.denoise, [_Fills(), [[1]], CANVAS], {"key": KEY, "length": 2, "steps": 1, "temperature": 1.0, "which": [0], "left_to_right": True}),
    "canvas": (canvas.most_probable, [CANVAS, SHARES], {"fixed": None, "which": None, "state": None, "remaining": 0}),
    "to_canvas": (canvas.to_canvas, [CONSTRAINT], {"max_depth": 4, "max_states": 99, "pad_ids": ()}),
    "load_programs": (jax_decode.load_programs, ["there/is/no/file"], {}),
}  # fmt: skip
"""Of those that run programs: arguments are checked before."""


PROGRAMS = (
    "decoding.programs.Program.__call__", "step_costs.key_words", "canvas.denoising.trajectories", "canvas.canvas._filled",
    "probability.exact._first", "decoding.free_draft._run",
)  # fmt: skip


class ReachedError(Exception):
    """A program would have run."""


def not_run(self, *arguments, **sizes):
    hash(tuple(sizes.values()))
    raise ReachedError


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments(name, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    every = 1 if name not in SLOW or request.config.getoption("exhaustive") else 7
    check(name, *CALLS[name], ODD, every)


@pytest.mark.parametrize("name", LOOPS)
def test_odd_arguments_of_loops(name, exhaustive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for program in PROGRAMS:
        monkeypatch.setattr(f"jax_decode.{program}", not_run)
    check(name, *LOOPS[name], ODD + ODD_OBJECTS, 1 if exhaustive else 9)


def test_every_public_function_of_the_decoding_half_has_its_turn():
    stub = Path(jax_decode.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    public = {name: getattr(jax_decode, name) for name in re.findall(r" as (\w+)$", stub, re.MULTILINE)}
    functions = {name for name, own in public.items() if inspect.isfunction(own)}
    assert len(functions) > 30
    assert not functions - ELSEWHERE - CALLS.keys() - LOOPS.keys()
    assert not ELSEWHERE - functions


@pytest.mark.parametrize("name", [name for name, (_, _, options) in LOOPS.items() if "key" in options])
def test_a_wrong_key_is_told_before_anything_runs(name, monkeypatch):
    """Also where no key would be needed, because all sequences are few."""
    for program in PROGRAMS:
        monkeypatch.setattr(f"jax_decode.{program}", not_run)
    function, arguments, options = LOOPS[name]
    for key in (5, "x", jnp.zeros(2), jax.random.split(KEY, 7), [KEY], np.zeros((1, 3), np.uint32)):
        with pytest.raises(jax_decode.DecodeError, match="key"):
            function(*arguments, **options | {"key": key})


def check(name, function, arguments, options, odd, every):
    """Odd values in each place, of `every` so many one, another for each place."""
    with jax.numpy_dtype_promotion("standard"):
        for i, place in enumerate([*range(len(arguments)), *options]):
            for value in odd[i % every :: every]:
                given, named = list(arguments), dict(options)
                if isinstance(place, int):
                    given[place] = value
                else:
                    named[place] = value
                try:
                    function(*given, **named)
                except Exception as error:
                    if isinstance(error, ReachedError) or (isinstance(error, OURS) and not isinstance(error, fsa_compile.DefectError)):
                        continue
                    pytest.fail(f"{name}, {place}={value!r:.60}: {type(error).__name__}: {error}")


NESTED = 'start: "(" start ")" | "a"'
BRIEFLY = fsa_compile.CompileLimits(max_seconds=0.3)
TREE = {"type": "array", "items": {"$ref": "#"}}
COUNTS = {
    "walk.allowed": lambda n: CONSTRAINT.walk().allowed(n),
    "walk.fill_bitmask": lambda n: CONSTRAINT.walk().fill_bitmask(fsa_compile.bitmask.allocate_bitmask(5, 257), 4, n),
    "walk.advance": lambda n: CONSTRAINT.walk().advance(122, n),
    "walk.rewind": lambda n: CONSTRAINT.walk().rewind(n),
    "walk": lambda n: fsa_compile.compile_grammar(NESTED, VOCABULARY).walk(n).allowed(),
    "items": lambda n: fsa_compile.compile_items([[66, 67]], VOCABULARY).walk().allowed(n),
    "allocate_bitmask": lambda n: fsa_compile.bitmask.allocate_bitmask(n, 257),
    "CompileCache": lambda n: fsa_compile.CompileCache("kept", max_bytes=n),
    "ConstraintLogitsProcessor": lambda n: fsa_compile.ConstraintLogitsProcessor(CONSTRAINT, prompt_length=n),
    "beams": lambda n: fsa_compile.ConstraintLogitsProcessor(CONSTRAINT, beams=n),
    "stacks": lambda n: fsa_compile.compile_grammar(NESTED, VOCABULARY, stacks=n),
    "workers": lambda n: fsa_compile.compile_schemas({}, VOCABULARY, workers=n),
    "delimited_list, low": lambda n: fsa_compile.extensions.delimited_list("a", low=n),
    "delimited_list, high": lambda n: fsa_compile.extensions.delimited_list("a", high=n),
    "image": lambda n: fsa_compile.extensions.image([300], high=n),
    "special_token": lambda n: fsa_compile.extensions.special_token(n),
    "length": lambda n: fsa_compile.compile_regex("[ab]*", VOCABULARY, filters=[fsa_compile.filters.length(at_most=n)]),
    "length, least": lambda n: fsa_compile.compile_regex("[ab]*", VOCABULARY, filters=[fsa_compile.filters.length(at_least=n)]),
    "token_count": lambda n: fsa_compile.filters.token_count(n),
    "nfc": lambda n: fsa_compile.filters.nfc(max_marks=n),
    "canonical": lambda n: fsa_compile.compile_regex("a", VOCABULARY, canonical=n),
    "canonical ids": lambda n: fsa_compile.compile_regex("a", VOCABULARY, canonical=[n]),
    "max_depth": lambda n: fsa_compile.compile_grammar(NESTED, VOCABULARY, filters=[fsa_compile.filters.token_count(9)], max_depth=n, limits=BRIEFLY),
    "max_object_depth": lambda n: fsa_compile.compile_json_schema(
        TREE, VOCABULARY, options=fsa_compile.SchemaOptions(max_object_depth=n, max_array_depth=2), limits=BRIEFLY
    ),
    "max_orders": lambda n: fsa_compile.compile_json_schema({"properties": {"a": {}}}, VOCABULARY, options=fsa_compile.SchemaOptions(max_orders=n)),
    "max_plain": lambda n: fsa_compile.YamlOptions(max_plain=n),
    "limits": lambda n: fsa_compile.compile_regex("a", VOCABULARY, limits=fsa_compile.CompileLimits(max_rows=n)),
    "max_reasoning_chars": lambda n: fsa_compile.compile_response(VOCABULARY, protocol="qwen3", max_reasoning_chars=n),
}  # fmt: skip
"""What compiles or walks, called with a number."""


@pytest.mark.parametrize("name", COUNTS)
def test_whole_numbers_of_the_compiling_half(name, tmp_path, monkeypatch):
    """A number of NumPy does what Python's does; what is none, or too large, is an error of ours, and at once."""
    monkeypatch.chdir(tmp_path)
    outcomes = list[str]()
    for value in (4, np.int64(4), np.uint8(4), np.array(4)[()], *ODD[:16], np.True_, 2**31, 2**63):
        try:
            outcomes.append(repr(COUNTS[name](value)))
        except fsa_compile.DefectError as error:
            pytest.fail(f"{name}, {value!r}: {error}")
        except OURS as error:
            outcomes.append(str(error))
    assert len({re.sub(r"at 0x\w+|np\.\w+\((?=4\))|(?<=4)\)", "", outcome) for outcome in outcomes[:4]}) == 1, outcomes[:4]


ITEMS = fsa_compile.compile_items([[66, 67], [66, 68, 69]], VOCABULARY)
DFA = fsa_compile.regex("a|bc").to_byte_dfa()
TOKENIZER = fsa_compile.load_tokenizer(models.small_tokenizer_path())
CANONICAL = fsa_compile.canonical_tables(TOKENIZER)
OWN = fsa_compile.compile_regex("[a-z ]{1,9}", TOKENIZER, canonical=True)
PIPELINE = fsa_compile.TextPipeline(TOKENIZER)
WALK, LANGUAGE = CONSTRAINT.walk(), fsa_compile.regex("a")
HOST = {
    "bitmask_shape": (fsa_compile.bitmask.bitmask_shape, [2, 257], 0),
    "apply_bitmask": (fsa_compile.bitmask.apply_bitmask, [np.zeros((2, 257), np.float32), fsa_compile.bitmask.allocate_bitmask(2, 257)], 0),
    "child": (ITEMS.child, [0, 66], 0),
    "find": (ITEMS.find, [[66, 67]], 0),
    "items.advance": (lambda token: ITEMS.walk().advance(token), [66], 0),
    "next_node": (lambda token: CONSTRAINT.walk().next_node(token), [122], 0),
    "advance": (lambda token: CONSTRAINT.walk().advance(token), [122], 0),
    "canonical advance": (lambda token: fsa_compile.CanonicalWalk(OWN, CANONICAL).advance(token), [300], 0),
    "outgoing": (CONSTRAINT.outgoing, [1], 0),
    "row_tokens": (CONSTRAINT.row_tokens, [0], 0),
    "HostWalk": (fsa_compile.HostWalk, [CONSTRAINT, 5], 0),
    "CanonicalWalk": (fsa_compile.CanonicalWalk, [OWN, CANONICAL], 0),
    "canonical after": (CANONICAL.after, [[300]], 0),
    "is_canonical": (CANONICAL.is_canonical, [[300, 301]], 0),
    "canonical tables": (fsa_compile.CanonicalTables.load, ["there/is/no/file", TOKENIZER], 0),
    "key": (fsa_compile.CompileCache.key, [["x"], VOCABULARY], 0),
    "step": (DFA.step, [1, 97], 0),
    "run": (DFA.run, [b"a", 1], 0),
    "accepts": (DFA.accepts, [b"a"], 0),
    "decode": (VOCABULARY.decode, [[98]], 0),
    "healed text": (fsa_compile.heal([98], CONSTRAINT, VOCABULARY).text, [[1]], 0),
    "heal_batch": (fsa_compile.heal_batch, [[[98]]], (CONSTRAINT, VOCABULARY)),
    "pipeline": (lambda filters, canonical: fsa_compile.TextPipeline(TOKENIZER, filters=filters, canonical=canonical), [(), False], 0),
    "pipeline.compile": (lambda filters: PIPELINE.compile(fsa_compile.compile_regex, "a", filters=filters), [()], 0),
    "pipeline.prompt": (lambda prompt: PIPELINE.prompt(prompt, fsa_compile.regex("a")), ["a"], 0),
    "filters": (lambda filters: fsa_compile.compile_regex("a", VOCABULARY, filters=filters), [()], 0),
    "extensions": (lambda extensions: fsa_compile.regex("a", extensions=extensions), [None], 0),
    "starts_text": (lambda starts: fsa_compile.compile_regex("a", VOCABULARY, starts_text=starts), [False], 0),
    "namespace": (lambda names, code: fsa_compile.parse(int, "5", namespace=names, allow_code=code), [{}, False], 0),
    "sample": (lambda *given: fsa_compile.inspect.sample(given[0], seed=given[1], max_tokens=given[2], max_depth=given[3]), [CONSTRAINT, 0, 9, 4], 0),
    "shortest_tokens": (fsa_compile.inspect.shortest_tokens, [CONSTRAINT, None], 0),
    "after": (WALK.after, [WALK.configurations[0], 122], 0),
    "accepts_at": (WALK.accepts_at, [WALK.configurations[0]], 0),
    "sources": (WALK.sources, [WALK.configurations[0]], 0),
    "words_at": (lambda at: WALK.words_at(at, 9), [WALK.configurations[0]], 0),
    "resumed": (WALK.resumed, [WALK.configurations], 0),
    "or": (operator.or_, [LANGUAGE, LANGUAGE], 0),
    "and": (operator.and_, [LANGUAGE, LANGUAGE], 0),
    "but not": (lambda other: other - LANGUAGE, [fsa_compile.regex("a|b")], 0),
    "one after the other": (operator.add, [LANGUAGE, LANGUAGE], 0),
    "to_byte_dfa": (LANGUAGE.to_byte_dfa, [None], 0),
    "to_byte_machine": (LANGUAGE.to_byte_machine, [None], 0),
    "statistics": (fsa_compile.inspect.statistics, [CONSTRAINT], 0),
    "stop": (lambda stop: fsa_compile.inspect.sample(CONSTRAINT, stop=stop), [0.3], 0),
    "grammar": (lambda start, syntax, mode: fsa_compile.compile_grammar(NESTED, VOCABULARY, start=start, syntax=syntax, mode=mode), [None, "lark", None], 0),
    "captures": (lambda grammar: fsa_compile.parse_captures(grammar, VOCABULARY, "a"), ['start[capture]: "a"'], 0),
    "library": (fsa_compile.library.options, ["json"], 0),
    "grammar of the library": (fsa_compile.library.grammar_text, ["json"], 0),
    "style of a type": (lambda style: fsa_compile.dump(int, 5, style=style), ["json"], 0),
    "style of YAML": (lambda style: fsa_compile.compile_yaml_schema({"const": 1}, VOCABULARY, style=style), ["flow"], 0),
    "options of YAML": (lambda schema: fsa_compile.YamlOptions(schema=schema), [fsa_compile.SchemaOptions()], 0),
    "draft": (lambda draft: fsa_compile.SchemaOptions(draft=draft), ["7"], 0),
    "alphabet": (lambda alphabet: fsa_compile.acceptor(DFA, alphabet=alphabet), ["bytes"], 0),
    "unit": (lambda unit: fsa_compile.filters.length(at_most=3, unit=unit), ["bytes"], 0),
    "stop ids": (lambda ids: fsa_compile.Vocabulary.from_tokens([b"a", b""], stop_ids=ids), [[1]], 0),
    "indices": (lambda i: fsa_compile.step_matchers([fsa_compile.Matcher(CONSTRAINT, VOCABULARY)], None, fsa_compile.bitmask.allocate_bitmask(2, 257), i), [[1]], 0),
}  # fmt: skip
"""Methods and functions that run on the host, their arguments, and arguments behind them that stay."""
ODD_ON_THE_HOST = (
    *(x for x in ODD if not isinstance(x, range)), range(3), [1.5], [True], [-1], [2**70], [257], np.array([True]), np.array([1.5]), np.uint8(200), -5, 256,
    memoryview(b"ab"), {1: 2}, [{}], iter([1]), np.array([1, 2], object),
)  # fmt: skip


@pytest.mark.parametrize("name", HOST)
def test_odd_arguments_on_the_host(name):
    function, arguments, more = HOST[name]
    function(*arguments, *(more or ())) if "file" not in str(arguments) else None
    check(name, lambda *given: function(*given, *(more or ())), arguments, {}, ODD_ON_THE_HOST, 1)


def test_what_is_nearly_a_token_is_none():
    """Numbers were cut, texts read: an item, or a token, that was never asked for."""
    for near in (66.5, "66", np.float32(66), True, [66], None, b"B"):
        for call in (lambda x: ITEMS.find([x, 67]), lambda x: ITEMS.walk().advance(x), lambda x: CONSTRAINT.walk().next_node(x)):
            with pytest.raises(fsa_compile.ConstraintError, match="whole number"):
                call(near)


@pytest.mark.parametrize("value", ["no", 0, None, 1.0, [], np.zeros(2)])
def test_flags_of_the_compiling_half_are_truth_values(value):
    """A text such as "no" counted as true."""
    tokenizer, pattern = TOKENIZER, fsa_compile.regex("a")
    calls = {
        "starts_text": lambda: fsa_compile.compile_regex("a", VOCABULARY, starts_text=value),
        "allow_code": lambda: fsa_compile.parse(int, "5", allow_code=value),
        "ignore_case": lambda: fsa_compile.filters.forbid("a", ignore_case=value),
        "allow_empty": lambda: fsa_compile.extensions.substring_of("a", allow_empty=value),
        "canonical": lambda: fsa_compile.heal("a", pattern, tokenizer, canonical=value),
        "strict": lambda: fsa_compile.compile_response(VOCABULARY, protocol="qwen3", strict=value),
        "parallel_tool_calls": lambda: fsa_compile.compile_response(VOCABULARY, protocol="qwen3", parallel_tool_calls=value),
        "add_generation_prompt": lambda: fsa_compile.chat_prompt(
            [{"role": "user", "content": "a"}], tokenizer, template="gemma", add_generation_prompt=value
        ),
        "terminate_without_stop_token": lambda: fsa_compile.Matcher(CONSTRAINT, VOCABULARY, terminate_without_stop_token=value),
        "replace": lambda: fsa_compile.Registry("there").save("a", CONSTRAINT, replace=value),
    }
    for name, call in calls.items():
        with pytest.raises(fsa_compile.ConstraintError, match=f"{name} is "):
            call()


ENDLESS = {
    "choices": (lambda: fsa_compile.choices(map(str, itertools.count())), "choices"),
    "items": (lambda: fsa_compile.compile_items(itertools.repeat([66]), TOKENIZER), "items"),
    "canonical": (lambda: fsa_compile.compile_regex("a", TOKENIZER, canonical=itertools.repeat(66)), "canonical"),
    "characters": (lambda: fsa_compile.filters.characters(itertools.repeat("a")), "characters"),
    "tokens": (lambda: fsa_compile.filters.token_set(allow=itertools.repeat("a")), "allow"),
    "decode": (lambda: TOKENIZER.decode(itertools.repeat(66)), "ids"),
    "vocabulary": (lambda: VOCABULARY.decode(itertools.repeat(66)), "ids"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_generators_without_end_are_told(name, exhaustive):
    """They filled the memory until the system ended the process."""
    if name in ("choices", "items") and not exhaustive:
        pytest.skip("run by --exhaustive: reading as many as are allowed takes seconds")
    call, word = ENDLESS[name]
    with pytest.raises(fsa_compile.ConstraintError, match=word):
        call()
