"""Where the bit of a token lies in the words of a mask: on one device, or in words packed for every shard of a vocabulary."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax.sharding import Mesh


@dataclasses.dataclass(frozen=True)
class Shards:
    """A vocabulary spread over an axis of a mesh: shard s has the logits `[s * width, (s + 1) * width)` and their mask bits.

    Attributes:
      mesh: of the devices; axis: its axis that the last axis of logits and the words of masks lie on.
      count: n, size of the axis.
      width: logits per shard; a model must have exactly n times as many.
      num_words: words of a bit row per shard.
      columns: W, words of a bit row that is not spread: the noise of draws belongs to its columns, so that draws are the same.
    """

    mesh: Mesh
    axis: str
    count: int
    width: int
    num_words: int
    columns: int


@dataclasses.dataclass(frozen=True)
class Columns:
    """How tokens lie in words.

    Attributes:
      num_words: words of a bit row, of all shards together.
      shards: None where the vocabulary is not spread: token `b * num_words + j` is then bit b of word j. Else the same holds
        within every shard, for its own words and for tokens counted from its first.
    """

    num_words: int
    shards: Shards | None = None

    def place(self, token: Any) -> tuple[Any, Any]:
        """Word and bit of token ids, int32 arrays of NumPy or JAX alike."""
        if self.shards is None:
            return token % self.num_words, token // self.num_words
        shard, own = token // self.shards.width, token % self.shards.width
        return shard * self.shards.num_words + own % self.shards.num_words, own // self.shards.num_words

    def token(self, word: Any, bit: Any) -> Any:
        """The token ids at words and bits: the inverse of `place`."""
        if self.shards is None:
            return bit * self.num_words + word
        shard, own = word // self.shards.num_words, word % self.shards.num_words
        return shard * self.shards.width + bit * self.shards.num_words + own
