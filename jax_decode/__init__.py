"""Samples from JAX language models inside compiled constraints, entirely on the accelerator.

Needs jax and NumPy. Names load on first use; only that jax can be found is checked at once, since nothing here does without.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if importlib.util.find_spec("jax") is None:
    from jax_decode.errors import MissingPackageError

    raise MissingPackageError("jax", "Decoding", "decode")

_HOME = {
    "Categorical": "samplers",
    "Choice": "sampling",
    "ConstraintState": "state",
    "ConstraintTables": "tables",
    "DecodeError": "errors",
    "Decoder": "decoder",
    "Forced": "forced",
    "ForcedText": "drafts",
    "FunctionDecoder": "decoder",
    "Generation": "generation",
    "Greedy": "samplers",
    "Hypotheses": "beam",
    "Masked": "probability.proposals",
    "Mass": "probability.mass",
    "MinP": "samplers",
    "ModelDraft": "drafts",
    "Options": "probability.options",
    "PromptLookup": "drafts",
    "Rejection": "probability.proposals",
    "RepeatedCache": "decoder",
    "Scores": "probability.scoring",
    "Sequences": "probability.sequences",
    "Status": "state",
    "StepByStep": "decoder",
    "StopStrings": "stopping",
    "StopWhen": "stopping",
    "StoppingRule": "stopping",
    "Streamed": "streaming",
    "TextScores": "probability.text_scores",
    "TimeLimit": "stopping",
    "TopK": "samplers",
    "TopP": "samplers",
    "WeightedGeneration": "probability.particles",
    "Work": "generation",
    "advance": "transition",
    "beam_search": "beam",
    "enumerate_sequences": "probability.sequences",
    "fork": "forking",
    "fork_cache": "forking",
    "generate": "generating",
    "generate_smc": "probability.particles",
    "init_state": "state",
    "key_words": "noise",
    "load_orbax": "orbax",
    "log_mass": "probability.mass",
    "longest_spelling": "forced",
    "log_weights": "probability.weights",
    "mask": "masking",
    "mask_logits": "masking",
    "mask_words": "masking",
    "only_token": "forced",
    "option_probabilities": "probability.options",
    "rewind": "forking",
    "sample": "sampling",
    "sample_without_replacement": "beam",
    "save_orbax": "orbax",
    "score": "probability.scoring",
    "score_texts": "probability.text_scores",
    "sharded_rows": "placement",
    "step_report": "step_costs",
    "stream": "streaming",
    "to_device": "tables",
    "tokenizations": "probability.tokenizations",
    "weighted_rejection": "probability.proposals",
}

_MODULES = ("integrations", "report")
"""Public modules that are attributes without being imported by name."""

if TYPE_CHECKING:
    from jax_decode import integrations as integrations
    from jax_decode import report as report
    from jax_decode.beam import Hypotheses as Hypotheses
    from jax_decode.beam import beam_search as beam_search
    from jax_decode.beam import sample_without_replacement as sample_without_replacement
    from jax_decode.decoder import Decoder as Decoder
    from jax_decode.decoder import FunctionDecoder as FunctionDecoder
    from jax_decode.decoder import RepeatedCache as RepeatedCache
    from jax_decode.decoder import StepByStep as StepByStep
    from jax_decode.drafts import ForcedText as ForcedText
    from jax_decode.drafts import ModelDraft as ModelDraft
    from jax_decode.drafts import PromptLookup as PromptLookup
    from jax_decode.errors import DecodeError as DecodeError
    from jax_decode.forced import Forced as Forced
    from jax_decode.forced import longest_spelling as longest_spelling
    from jax_decode.forced import only_token as only_token
    from jax_decode.forking import fork as fork
    from jax_decode.forking import fork_cache as fork_cache
    from jax_decode.forking import rewind as rewind
    from jax_decode.generating import generate as generate
    from jax_decode.generation import Generation as Generation
    from jax_decode.generation import Work as Work
    from jax_decode.masking import mask as mask
    from jax_decode.masking import mask_logits as mask_logits
    from jax_decode.masking import mask_words as mask_words
    from jax_decode.noise import key_words as key_words
    from jax_decode.orbax import load_orbax as load_orbax
    from jax_decode.orbax import save_orbax as save_orbax
    from jax_decode.placement import sharded_rows as sharded_rows
    from jax_decode.probability.mass import Mass as Mass
    from jax_decode.probability.mass import log_mass as log_mass
    from jax_decode.probability.options import Options as Options
    from jax_decode.probability.options import option_probabilities as option_probabilities
    from jax_decode.probability.particles import WeightedGeneration as WeightedGeneration
    from jax_decode.probability.particles import generate_smc as generate_smc
    from jax_decode.probability.proposals import Masked as Masked
    from jax_decode.probability.proposals import Rejection as Rejection
    from jax_decode.probability.proposals import weighted_rejection as weighted_rejection
    from jax_decode.probability.scoring import Scores as Scores
    from jax_decode.probability.scoring import score as score
    from jax_decode.probability.sequences import Sequences as Sequences
    from jax_decode.probability.sequences import enumerate_sequences as enumerate_sequences
    from jax_decode.probability.text_scores import TextScores as TextScores
    from jax_decode.probability.text_scores import score_texts as score_texts
    from jax_decode.probability.tokenizations import tokenizations as tokenizations
    from jax_decode.probability.weights import log_weights as log_weights
    from jax_decode.samplers import Categorical as Categorical
    from jax_decode.samplers import Greedy as Greedy
    from jax_decode.samplers import MinP as MinP
    from jax_decode.samplers import TopK as TopK
    from jax_decode.samplers import TopP as TopP
    from jax_decode.sampling import Choice as Choice
    from jax_decode.sampling import sample as sample
    from jax_decode.state import ConstraintState as ConstraintState
    from jax_decode.state import Status as Status
    from jax_decode.state import init_state as init_state
    from jax_decode.step_costs import step_report as step_report
    from jax_decode.stopping import StoppingRule as StoppingRule
    from jax_decode.stopping import StopStrings as StopStrings
    from jax_decode.stopping import StopWhen as StopWhen
    from jax_decode.stopping import TimeLimit as TimeLimit
    from jax_decode.streaming import Streamed as Streamed
    from jax_decode.streaming import stream as stream
    from jax_decode.tables import ConstraintTables as ConstraintTables
    from jax_decode.tables import to_device as to_device
    from jax_decode.transition import advance as advance

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"jax_decode.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'jax_decode' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"jax_decode.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
