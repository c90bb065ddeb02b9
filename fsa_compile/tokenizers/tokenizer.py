"""The interface every tokenizer format offers, and reading a file within limits.

What is specific to one format belongs to that format's module.
"""

from __future__ import annotations

import abc
import importlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fsa_compile.errors import TokenizerError, install_command
from fsa_compile.inputs.files import open_regular
from fsa_compile.vocabulary.vocabulary import Vocabulary

MAX_FILE_BYTES = 1 << 28
"""Largest tokenizer file that is read: eight times the largest published one."""


class Tokenizer(abc.ABC):
    """Text to token ids and back, for one vocabulary.

    Attributes:
      vocabulary: exact bytes per id, special ids, stop ids.
      kind: the format, such as "sentencepiece-bpe", "tiktoken", "huggingface-bpe", "gpt2" or "bytes".
      origin: the path or the object that it was loaded from; None if it was made otherwise.
    """

    vocabulary: Vocabulary
    kind: str
    origin: Any = None

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of `text`: no id for the start of a text is added, and the printed name of a special id in it is
        ordinary text.

        Args:
          text: any text without lone surrogates.

        Returns:
          Token ids.

        Raises:
          TokenizerError: the text cannot be encoded, or the encoder's package or data is missing.
        """

    def decode(self, ids: Iterable[int]) -> str:
        """The text that `ids` write from the start of a text; bytes that are not UTF-8 become U+FFFD.

        Ids that are not text write nothing. The space that some tokenizers put before the first word is dropped.

        Args:
          ids: token ids.

        Returns:
          The text.

        Raises:
          TokenizerError: an id is out of range.
        """
        return self.vocabulary.decode(ids)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kind={self.kind!r}, vocabulary={self.vocabulary!r})"


def require(module: str) -> Any:
    """An optional package's module; where it is not installed, a `TokenizerError` names the extra that installs it."""
    try:
        found = importlib.import_module(module)
        if hasattr(found, "__path__") and getattr(found, "__file__", None) is None:  # a namespace package: any folder is one
            raise ImportError(f"{', '.join(found.__path__)} is a folder without a package")
        return found
    except ImportError as error:
        raise TokenizerError(
            f"encoding text with this tokenizer needs the package {module!r}, which cannot be imported ({error})",
            fix=f"Install it with: {install_command('compile')}",
        ) from error


def checked_text(text: object) -> str:
    """The same text, which a `TokenizerError` refuses where it is no str or holds a lone surrogate."""
    if not isinstance(text, str):
        raise TokenizerError(
            f"the text to encode is {type(text).__name__}, not str", fix="Decode bytes first: data.decode()."
        )
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the text holds the lone surrogate U+{ord(text[error.start]):04X}, which no token can spell",
            where=f"character {error.start}",
            fix='Repair it first: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").',
        ) from None
    return text


def encoded(text: object, encoder: Callable[[], Any], source: str) -> list[int]:
    """The ids of a text by an encoder of the package `tokenizers`, without the tokens that it would put around."""
    text = checked_text(text)
    try:
        return list(encoder().encode(text, add_special_tokens=False).ids)
    except TokenizerError:
        raise
    except Exception as error:
        raise TokenizerError(f"tokenizers cannot encode this text ({error})", where=source) from error


def read_file(path: Path) -> bytes:
    """The content of a tokenizer file. Raises `TokenizerError`: missing, unreadable, empty, or larger than `MAX_FILE_BYTES`."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            # The file may still grow, so the read itself is bounded as well.
            data = file.read(MAX_FILE_BYTES + 1) if size <= MAX_FILE_BYTES else b""
    except FileNotFoundError:
        fix = "Check the path: give a tokenizer's file, or the folder that holds it."
        if len(path.parts) == 2 and not path.suffix and path.parts[0] not in (".", "..", "/", "~"):
            fix += f" If it is a repository, fetch it first: hf download {path} --local-dir tokenizer"
        raise TokenizerError("there is no tokenizer of this name here", where=str(path), fix=fix) from None
    except (OSError, ValueError) as error:  # ValueError: a path that holds a null character
        reason = getattr(error, "strerror", None) or error
        raise TokenizerError(f"the tokenizer file cannot be read ({reason})", where=str(path)) from error
    if size > MAX_FILE_BYTES or len(data) > MAX_FILE_BYTES:
        raise TokenizerError(
            f"the file of {max(size, len(data)):,} bytes is larger than a tokenizer may be ({MAX_FILE_BYTES:,})",
            where=str(path),
            fix="Give the tokenizer's file, not the model's.",
        )
    if not data:
        raise TokenizerError("the tokenizer file is empty", where=str(path), fix="Download it again.")
    return data
