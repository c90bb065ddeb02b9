"""`load`: a model and its tokenizer, checked to belong together, as a `LanguageModel`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsa_compile
from constrax.errors import CallError, MissingPackageError, UseError
from fsa_compile.errors import naming

if TYPE_CHECKING:
    from constrax.language_model import LanguageModel

_TOKENIZER = "Name it: constrax.load(..., tokenizer='tokenizer.model'), a file, a folder, or what load_tokenizer returns."
_USUAL_PADDING = 0.05
"""Share of a model's logits that padding usually takes at most."""


@naming(CallError, "constrax.load")
def load(
    model: Any = "small",
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    tokenizer: Any = None,
    dtype: Any = None,
    template: str | None = None,
) -> LanguageModel:
    """Loads a model with its tokenizer.

    Args:
      model: "small" for the model that comes with the package; a published size such as "gemma3-1b"; a folder with a checkpoint
        that says its size; or a model of your own, see `jax_decode.Decoder`.
      checkpoint: the folder or file of a published size.
      tokenizer: anything `fsa_compile.load_tokenizer` takes; by default the one in the checkpoint's folder or beside it.
      dtype: of the parameters; None keeps the checkpoint's (float32 for the small model, which is faster on a CPU).
      template: chat template, see `fsa_compile.chat_prompt`; None: the tokenizer's own, or the convention its markers belong to.

    Returns:
      The model, ready to be called.

    Raises:
      UseError: there is no such model, no tokenizer, or the two do not belong together.
      MissingPackageError: a package is not installed; names the command that installs it.
      ModelError, TokenizerError: a file is missing, damaged, or not of a kind that can be read.

    Examples:
      >>> lm = constrax.load("small")
      >>> lm("Question: Is the kettle red?\\nAnswer: ", ["yes", "no"])
      'yes'
    """
    _check_installed()
    decoder, found = _decoder(model, checkpoint, dtype)
    loaded = _tokenizer(tokenizer, found)
    check_sizes(loaded.vocabulary, decoder)
    from constrax.language_model import LanguageModel

    return LanguageModel(decoder, loaded, template=template)


def _check_installed() -> None:
    missing = [name for name in ("jax", "flax", "orbax") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(missing)


def own_models() -> Any:
    """The package `models`, after checking that no file of the user's own hides it."""
    found = importlib.import_module("models")
    if not hasattr(found, "__path__") or not hasattr(found, "small_tokenizer_path"):
        where = getattr(found, "__file__", None) or str(getattr(found, "__path__", "?"))
        what = "the package 'models' of constrax is hidden by another module of this name"
        raise UseError(what, where=where, fix="Rename that file or folder, or start Python elsewhere.")
    return found


def _decoder(model: Any, checkpoint: Any, dtype: Any) -> tuple[Any, list[Any]]:
    """The model, and where its tokenizer may lie."""
    models = own_models()
    if not isinstance(model, (str, os.PathLike)):
        return _given_decoder(model, checkpoint, dtype), []
    if model == "small":
        if checkpoint is not None:
            raise UseError("the small model brings its own checkpoint", fix="Leave the checkpoint out, or name another size.")
        return models.load_small(dtype="float32" if dtype is None else dtype), [models.small_tokenizer_path()]
    if model in models.CONFIGS:
        if checkpoint is None:
            fix = f"Pass its folder: constrax.load({model!r}, 'folder'). docs/welcome.md says how to get one."
            raise UseError(f"{model} needs a checkpoint, which does not come with this package", fix=fix)
        return models.load(model, checkpoint, dtype=dtype), _places(checkpoint)
    if Path(model).expanduser().exists():
        if checkpoint is not None:
            raise UseError("two folders were given", where=f"{model} and {checkpoint}", fix="Give the size, then the folder.")
        return models.load(None, model, dtype=dtype), _places(model)
    raise _no_such_model(str(model), list(models.CONFIGS))


def _given_decoder(model: Any, checkpoint: Any, dtype: Any) -> Any:
    lacking = [name for name in ("vocab_size", "init_cache", "apply") if not hasattr(model, name)]
    if lacking:
        what = f"a {type(model).__name__} is no model: it has no {' and no '.join(lacking)}"
        raise UseError(what, fix="See jax_decode.Decoder; jax_decode.FunctionDecoder adapts plain functions.")
    if checkpoint is not None or dtype is not None:
        raise UseError("a model that is loaded already takes no checkpoint and no dtype", fix="Leave them out.")
    return model


def _no_such_model(name: str, known: list[str]) -> UseError:
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        fix = f"If it is a repository, fetch it first: hf download {name} --local-dir model, then constrax.load('model')."
        return UseError(f"there is no folder {name!r} here", fix=fix)
    return UseError(f"there is no model {name!r}", fix=f"Give 'small', one of {', '.join(known)}, or a checkpoint's folder.")


def _places(checkpoint: Any) -> list[Any]:
    path = Path(checkpoint).expanduser()
    folder = path if path.is_dir() else path.parent
    return [folder, folder.absolute().parent]


def _tokenizer(given: Any, places: list[Any]) -> Any:
    if given is not None:
        if isinstance(given, str) and given.count("/") == 1 and not Path(given).expanduser().exists():
            fix = f"If it is a repository, fetch it first: hf download {given} --local-dir model, then tokenizer='model'."
            raise UseError(f"there is no tokenizer {given!r} here", fix=fix)
        return fsa_compile.load_tokenizer(given)
    if not places:
        raise UseError("a model of your own needs a tokenizer", fix=_TOKENIZER)
    for place in places:
        try:
            return fsa_compile.load_tokenizer(place)
        except fsa_compile.TokenizerError as error:
            if "no file in this folder" not in error.what:
                raise
    raise UseError("there is no tokenizer with this checkpoint", where=str(places[0]), fix=_TOKENIZER)


def check_sizes(vocabulary: Any, decoder: Any) -> None:
    """Checks that a tokenizer's ids fit a model's logits.

    Raises:
      UseError: they cannot be those of one model: the model knows another vocabulary, there are more ids than logits, or fewer
        than half. (A warning where more logits than padding usually takes have no id.)
    """
    own = getattr(decoder, "vocabulary_fingerprint", "")
    if own and own != vocabulary.fingerprint:
        what = f"the tokenizer has vocabulary {vocabulary.fingerprint[:12]}; the model was trained with {own[:12]}"
        raise UseError(f"tokenizer and model do not belong together: {what}", fix="Load the model's own tokenizer.")
    ids, logits = vocabulary.size, int(decoder.vocab_size)
    numbers = f"the tokenizer has {ids:,} ids, the model {logits:,} logits"
    fix = "Load the tokenizer that the model was trained with."
    if ids > logits or (2 * ids < logits and vocabulary.logits_width != logits):
        raise UseError(f"tokenizer and model do not belong together: {numbers}", fix=fix)
    if logits - ids > _USUAL_PADDING * logits and vocabulary.logits_width != logits:
        warnings.warn(f"{numbers}; are they of one model? {fix}", stacklevel=3)
