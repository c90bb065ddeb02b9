"""constrax, compiling half: a formal language and a tokenizer become NumPy arrays, offline. Never imports jax.

Names load when first used, so `import fsa_compile.artifact` costs NumPy only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "CompiledConstraint": "artifact",
    "ChatPrompt": "chat",
    "ChatTemplateError": "chat",
    "chat_prompt": "chat",
    "Healed": "healing",
    "HostWalk": "host_walk",
    "CanonicalTables": "canonical.tables",
    "CanonicalWalk": "canonical.walk",
    "canonical_tables": "canonical.tables",
    "ByteDfa": "byte_dfa",
    "ArtifactError": "errors",
    "ConstraintError": "errors",
    "GrammarConflictError": "errors",
    "GrammarError": "errors",
    "GrammarSyntaxError": "errors",
    "UnsupportedGrammarError": "errors",
    "LimitError": "errors",
    "MissingPackageError": "errors",
    "PatternError": "errors",
    "RegexSyntaxError": "errors",
    "TokenizerError": "errors",
    "TypeTextError": "python_types",
    "UnsatisfiableError": "errors",
    "UnspellableError": "errors",
    "UnsupportedPatternError": "errors",
    "UnsupportedTypeError": "python_types",
    "CompileLimits": "limits",
    "Language": "language",
    "acceptor": "language",
    "choices": "language",
    "literal": "language",
    "regex": "language",
    "PipelinePrompt": "text_pipeline",
    "TextPipeline": "text_pipeline",
    "heal": "healing",
    "heal_batch": "healing",
    "compile_acceptor": "pipeline",
    "compile_choices": "pipeline",
    "compile_grammar": "pipeline",
    "compile_language": "pipeline",
    "compile_regex": "pipeline",
    "CompiledItems": "items.artifact",
    "compile_items": "items.compile",
    "Registry": "registry",
    "ConstraintLogitsProcessor": "interop",
    "FormatError": "interop",
    "Matcher": "interop",
    "ToolTags": "interop",
    "compile_response_format": "interop",
    "compile_structured_outputs": "interop",
    "CompileCache": "compile_cache",
    "compile_json_schema": "json_schema",
    "compile_schemas": "batch_compile",
    "compile_folder": "batch_folder",
    "read_manifest": "batch_folder",
    "compile_on_ray": "batch_ray",
    "SchemaError": "json_schema",
    "SchemaOptions": "json_schema",
    "UnsatisfiableSchemaError": "json_schema",
    "UnsupportedSchemaError": "json_schema",
    "Call": "python_types",
    "compile_call": "python_types",
    "compile_type": "python_types",
    "dump": "python_types",
    "parse": "python_types",
    "parse_call": "python_types",
    "YamlOptions": "yaml_schema",
    "compile_yaml_schema": "yaml_schema",
    "Tokenizer": "tokenizers",
    "load_tokenizer": "tokenizers",
    "Vocabulary": "vocabulary",
}

_MODULES = ("bitmask", "draw", "draw_grammar", "extensions", "filters", "inspect", "library", "preprocessing")
"""Public modules that are attributes without being imported by name."""

if TYPE_CHECKING:
    from fsa_compile import bitmask as bitmask
    from fsa_compile import draw as draw
    from fsa_compile import draw_grammar as draw_grammar
    from fsa_compile import extensions as extensions
    from fsa_compile import filters as filters
    from fsa_compile import inspect as inspect
    from fsa_compile import library as library
    from fsa_compile import preprocessing as preprocessing
    from fsa_compile.artifact import CompiledConstraint as CompiledConstraint
    from fsa_compile.batch_compile import compile_schemas as compile_schemas
    from fsa_compile.batch_folder import compile_folder as compile_folder
    from fsa_compile.batch_folder import read_manifest as read_manifest
    from fsa_compile.batch_ray import compile_on_ray as compile_on_ray
    from fsa_compile.byte_dfa import ByteDfa as ByteDfa
    from fsa_compile.canonical.tables import CanonicalTables as CanonicalTables
    from fsa_compile.canonical.tables import canonical_tables as canonical_tables
    from fsa_compile.canonical.walk import CanonicalWalk as CanonicalWalk
    from fsa_compile.chat import ChatPrompt as ChatPrompt
    from fsa_compile.chat import ChatTemplateError as ChatTemplateError
    from fsa_compile.chat import chat_prompt as chat_prompt
    from fsa_compile.compile_cache import CompileCache as CompileCache
    from fsa_compile.errors import ArtifactError as ArtifactError
    from fsa_compile.errors import ConstraintError as ConstraintError
    from fsa_compile.errors import GrammarConflictError as GrammarConflictError
    from fsa_compile.errors import GrammarError as GrammarError
    from fsa_compile.errors import GrammarSyntaxError as GrammarSyntaxError
    from fsa_compile.errors import LimitError as LimitError
    from fsa_compile.errors import MissingPackageError as MissingPackageError
    from fsa_compile.errors import PatternError as PatternError
    from fsa_compile.errors import RegexSyntaxError as RegexSyntaxError
    from fsa_compile.errors import TokenizerError as TokenizerError
    from fsa_compile.errors import UnsatisfiableError as UnsatisfiableError
    from fsa_compile.errors import UnspellableError as UnspellableError
    from fsa_compile.errors import UnsupportedGrammarError as UnsupportedGrammarError
    from fsa_compile.errors import UnsupportedPatternError as UnsupportedPatternError
    from fsa_compile.healing import Healed as Healed
    from fsa_compile.healing import heal as heal
    from fsa_compile.healing import heal_batch as heal_batch
    from fsa_compile.host_walk import HostWalk as HostWalk
    from fsa_compile.interop import ConstraintLogitsProcessor as ConstraintLogitsProcessor
    from fsa_compile.interop import FormatError as FormatError
    from fsa_compile.interop import Matcher as Matcher
    from fsa_compile.interop import ToolTags as ToolTags
    from fsa_compile.interop import compile_response_format as compile_response_format
    from fsa_compile.interop import compile_structured_outputs as compile_structured_outputs
    from fsa_compile.items.artifact import CompiledItems as CompiledItems
    from fsa_compile.items.compile import compile_items as compile_items
    from fsa_compile.json_schema import SchemaError as SchemaError
    from fsa_compile.json_schema import SchemaOptions as SchemaOptions
    from fsa_compile.json_schema import UnsatisfiableSchemaError as UnsatisfiableSchemaError
    from fsa_compile.json_schema import UnsupportedSchemaError as UnsupportedSchemaError
    from fsa_compile.json_schema import compile_json_schema as compile_json_schema
    from fsa_compile.language import Language as Language
    from fsa_compile.language import acceptor as acceptor
    from fsa_compile.language import choices as choices
    from fsa_compile.language import literal as literal
    from fsa_compile.language import regex as regex
    from fsa_compile.limits import CompileLimits as CompileLimits
    from fsa_compile.pipeline import compile_acceptor as compile_acceptor
    from fsa_compile.pipeline import compile_choices as compile_choices
    from fsa_compile.pipeline import compile_grammar as compile_grammar
    from fsa_compile.pipeline import compile_language as compile_language
    from fsa_compile.pipeline import compile_regex as compile_regex
    from fsa_compile.python_types import Call as Call
    from fsa_compile.python_types import TypeTextError as TypeTextError
    from fsa_compile.python_types import UnsupportedTypeError as UnsupportedTypeError
    from fsa_compile.python_types import compile_call as compile_call
    from fsa_compile.python_types import compile_type as compile_type
    from fsa_compile.python_types import dump as dump
    from fsa_compile.python_types import parse as parse
    from fsa_compile.python_types import parse_call as parse_call
    from fsa_compile.registry import Registry as Registry
    from fsa_compile.text_pipeline import PipelinePrompt as PipelinePrompt
    from fsa_compile.text_pipeline import TextPipeline as TextPipeline
    from fsa_compile.tokenizers import Tokenizer as Tokenizer
    from fsa_compile.tokenizers import load_tokenizer as load_tokenizer
    from fsa_compile.vocabulary import Vocabulary as Vocabulary
    from fsa_compile.yaml_schema import YamlOptions as YamlOptions
    from fsa_compile.yaml_schema import compile_yaml_schema as compile_yaml_schema

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if name in _MODULES:
        return importlib.import_module(f"fsa_compile.{name}")
    if home is None:
        raise AttributeError(f"module 'fsa_compile' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fsa_compile.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
