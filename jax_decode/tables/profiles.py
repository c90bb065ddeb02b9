"""Profiles: the sizes that are part of a compiled program, in a few named sets, so that new constraints compile nothing.

Numbers and names only. Which constraints need which sizes, and how arrays are padded to them, belongs to `tables`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from fsa_compile.errors import named_fields
from jax_decode.errors import DecodeError

GROWTH = 4
"""Between two scales of a profile: every table then holds this many times as much."""
MOST_SCALES = 4
"""Scales of every profile."""
_SPARE = 8
"""A scale beyond the second is chosen only for constraints that fill an eighth of it: programming languages, which are large in
few tables, would otherwise take gigabytes."""
_FEW_TOKENS = 1 << 15
_OVER_FEW = {"nested": {"max_candidates": 64}}
"""Static sizes over vocabularies of fewer tokens, where the larger ones would be a seventh of the step."""

Sizes = Mapping[str, int]


@named_fields
@dataclasses.dataclass(frozen=True)
class Profile:
    """What is static of constraints on the device, and for how much their tables have room.

    Attributes:
      name: of the kind of constraints.
      statics: the static sizes of `ConstraintTables`, as pairs of name and number. A constraint with smaller ones fits, too.
      room: entries of every table at scale 1; `nodes`, `groups`, `arcs`, `levels`, `rows`, and with stacks `delta`, `pushes`.
      counters: whether constraints may have counters.
      key_words: words of their sets of keys, of 32 keys each; 0 where they may have none.
      items: whether they are sets of items, and nothing else.
      scale: a power of `GROWTH`, by which all room is multiplied.
    """

    name: str
    statics: tuple[tuple[str, int], ...]
    room: tuple[tuple[str, int], ...]
    counters: bool = False
    key_words: int = 0
    items: bool = False
    scale: int = 1

    def over(self, vocab_size: int) -> Profile:
        """The same for a vocabulary: over small ones nodes list fewer tokens."""
        other = _OVER_FEW.get(self.name, {}) if vocab_size < _FEW_TOKENS else {}
        return dataclasses.replace(self, statics=tuple((dict(self.statics) | other).items()))

    @property
    def has_stack(self) -> bool:
        """Whether constraints may have stacks."""
        return dict(self.statics)["max_push"] > 0

    def size(self, table: str) -> int:
        """Entries of a table."""
        return dict(self.room)[table] * self.scale

    def lacks(self, statics: Sizes, used: Sizes, counters: bool) -> str:
        """What constraints need beyond the profile, in words; empty where they fit.

        Args:
          statics: their static sizes and `key_words`; used: entries of their tables, `tokens` among them where they are sets of
            items; counters: whether they have counters.
        """
        if self.items != ("tokens" in used):
            return "anything but sets of items" if self.items else "sets of items"
        own, room = dict(self.statics) | {"key_words": self.key_words}, dict(self.room)
        over = [f"{name} {size:,} > {own[name]:,}" for name, size in statics.items() if size > own.get(name, size)]
        most = {name: room.get(name, 0) * self.scale for name in used}
        over += [f"{name} {size:,} > {most[name]:,}" for name, size in used.items() if size > most[name]]
        return ", ".join(over + ["counters"] * (counters and not self.counters))

    def scaled(self, statics: Sizes, used: Sizes, counters: bool) -> Profile | None:
        """The smallest scale that has room for what constraints need; None where none has."""
        scales = (dataclasses.replace(self, scale=GROWTH**i) for i in range(MOST_SCALES))
        return next((one for one in scales if not one.lacks(statics, used, counters)), None)

    def __str__(self) -> str:
        return self.name if self.scale == 1 else f"{self.name} x{self.scale}"


def _profile(
    name: str, room: dict[str, int], *, counters: bool = False, key_words: int = 0, items: bool = False, **statics: int
) -> Profile:
    usual = {"max_repeats": 1, "stacks": 1, "max_unset": 0, "max_conditions": 0}
    return Profile(name, tuple((statics | usual | statics).items()), tuple(room.items()), counters, key_words, items)


REGULAR = _profile(
    "regular",
    {"nodes": 1024, "groups": 256, "arcs": 16384, "levels": 256, "rows": 128},
    max_groups=8, max_levels=8, max_candidates=64, search_depth=2, max_pops=0, max_push=0,
)  # fmt: skip
WIDE = _profile(
    "wide",
    {"nodes": 4096, "groups": 5120, "arcs": 147456, "levels": 5120, "rows": 1024},
    max_groups=32, max_levels=16, max_candidates=128, search_depth=3, max_pops=0, max_push=0,
)  # fmt: skip
NESTED = _profile(
    "nested",
    {"nodes": 768, "groups": 576, "arcs": 16384, "levels": 1152, "rows": 192, "delta": 384, "pushes": 48},
    max_groups=8, max_levels=8, max_candidates=128, search_depth=2, max_pops=4, max_push=4,
)  # fmt: skip
GENERAL = _profile(
    "general",
    {
        "nodes": 24576, "groups": 32768, "arcs": 524288, "levels": 32768, "rows": 1280, "delta": 30720, "pushes": 768,
        "symbols": 512, "increments": 8,
    },
    counters=True,
    max_groups=32, max_levels=16, max_candidates=128, search_depth=3, max_pops=6, max_push=4,
)  # fmt: skip

PROFILES = {profile.name: profile for profile in (REGULAR, WIDE, NESTED, GENERAL)}
"""From the smallest. Measured over MaskBench's development schemas, the library's grammars and a corpus of patterns, over the
vocabularies of the small model and of Llama 3: the first has room for 95 % of what needs no stack, the second for the rest; the
third for half of what needs one, the fourth for 99 %."""

KEYS = _profile(
    "keys",
    {
        "nodes": 1024, "groups": 768, "arcs": 24576, "levels": 1536, "rows": 192, "delta": 384, "pushes": 64,
        "symbols": 64, "increments": 4, "keys": 64, "guards": 64,
    },
    counters=True, key_words=2,
    max_groups=8, max_levels=16, max_candidates=128, search_depth=3, max_pops=4, max_push=4,
    max_repeats=2, max_unset=1, max_conditions=1,
)  # fmt: skip
PARALLEL = _profile(
    "parallel",
    {"nodes": 1024, "groups": 576, "arcs": 16384, "levels": 1152, "rows": 192, "delta": 768, "pushes": 96},
    max_groups=32, max_levels=8, max_candidates=512, search_depth=2, max_pops=4, max_push=4, max_repeats=4, stacks=8,
)  # fmt: skip
ITEMS = _profile(
    "items",
    {"nodes": 64, "groups": 64, "arcs": 256, "levels": 64, "rows": 16, "tokens": 16384, "wide": 8},
    items=True,
    max_groups=4, max_levels=8, max_candidates=16, search_depth=0, max_pops=0, max_push=0,
)  # fmt: skip

SPECIAL = {profile.name: profile for profile in (KEYS, PARALLEL, ITEMS)}
"""Profiles of the kinds that the four have no room for: keys in every order, several stacks at once, sets of items."""
_BY_NAME = PROFILES | SPECIAL


def named(text: str) -> Profile:
    """The profile that `str` writes so, such as "general" or "general x16".

    Raises:
      DecodeError: there is none.
    """
    every = (dataclasses.replace(profile, scale=GROWTH**i) for profile in _BY_NAME.values() for i in range(MOST_SCALES))
    found = next((profile for profile in every if str(profile) == text), None)
    if found is None:
        fix = f"There are {', '.join(_BY_NAME)}, each as it is or with x4, x16 or x64 behind it."
        raise DecodeError(f"there is no profile {text!r}", where="profile", fix=fix)
    return found


def _of_kind(statics: Sizes, used: Sizes) -> list[Profile]:
    """The profiles for constraints of a kind, from the smallest."""
    if "tokens" in used:
        return [ITEMS]
    if statics["key_words"]:
        return [KEYS]
    if statics["stacks"] > 1:
        return [PARALLEL]
    stacked = statics["max_push"] > 0  # the state of a stack is not for loops that ask for none
    return [profile for profile in PROFILES.values() if profile.has_stack == stacked]


def closest(statics: Sizes, used: Sizes) -> Profile:
    """The largest profile for constraints of a kind, at its largest scale."""
    return dataclasses.replace(_of_kind(statics, used)[-1], scale=GROWTH ** (MOST_SCALES - 1))


def _worthwhile(profile: Profile | None, used: Sizes) -> Profile | None:
    if profile is None or profile.scale <= GROWTH:
        return profile
    return profile if sum(map(profile.size, dict(profile.room))) <= _SPARE * sum(used.values()) else None


def choose_profile(asked: Profile | str | None, statics: Sizes, used: Sizes, counters: bool, vocab_size: int) -> Profile | None:
    """The profile that constraints get; None where they fit none and none was asked for.

    Args:
      asked: a name, whose smallest scale with room is taken; with a scale ("general x16"), or a `Profile`, for that very one;
        None for the smallest that fits, larger scales last, if not most of them would be empty.
      statics, used, counters: as in `Profile.lacks`.
      vocab_size: tokens of their vocabulary.

    Raises:
      DecodeError: the profile asked for is not known, or too small.
    """
    if asked is None:
        alike = [profile.over(vocab_size) for profile in _of_kind(statics, used)]
        fits = (profile for profile in alike if not profile.lacks(statics, used, counters))
        return next(fits, None) or _worthwhile(alike[-1].scaled(statics, used, counters), used)
    if not isinstance(asked, (str, Profile)):
        what = f"the profile is a {type(asked).__name__}"
        raise DecodeError(what, fix=f"Give a name out of {', '.join(_BY_NAME)}, another's tables.profile, or none.")
    if isinstance(asked, str) and asked in _BY_NAME:
        own = _BY_NAME[asked].over(vocab_size)
        chosen = own.scaled(statics, used, counters) or own
    else:
        chosen = (named(asked) if isinstance(asked, str) else asked).over(vocab_size)
    if lacking := chosen.lacks(statics, used, counters):
        fix = "Name a larger one, or give none: then the constraints get the smallest that fits, or sizes of their own."
        raise DecodeError(f"the constraints do not fit the profile {str(chosen)!r}: {lacking}", where="profile", fix=fix)
    return chosen
