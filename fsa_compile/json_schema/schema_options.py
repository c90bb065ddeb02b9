"""`SchemaOptions`: how JSON is to be written, and the named limits of the JSON Schema front end."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection
from typing import Literal, TypeAlias

from fsa_compile.errors import ConstraintError, is_whole, is_word, named_fields

Draft: TypeAlias = Literal["auto", "3", "4", "6", "7", "2019-09", "2020-12"]
Whitespace: TypeAlias = Literal["compact", "optional", "spaced", "indented"]
Integers: TypeAlias = Literal["plain", "all"]
Escapes: TypeAlias = Literal["all", "shortest"]
StringEscapes: TypeAlias = Literal["all", "where needed", "shortest"]

_CHOICES = {
    "draft": ("auto", "3", "4", "6", "7", "2019-09", "2020-12"),
    "whitespace": ("compact", "optional", "spaced", "indented"),
    "integers": ("plain", "all"),
    "string_escapes": ("all", "where needed", "shortest"),
    "word_escapes": ("all", "shortest"),
    "key_order": ("declared", "any"),
    "formats": ("assert", "annotate"),
    "unenforced_formats": ("refuse", "annotate"),
}

UNENFORCED = ("uniqueItems", "pattern", "format", "minProperties", "unevaluatedProperties", "unevaluatedItems")
"""Keywords that a schema can do without: without one of them it allows more."""


@named_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SchemaOptions:
    """How a schema is read and how its values are written.

    Attributes:
      draft: version of JSON Schema; "auto" reads `$schema`, and takes 2020-12 where it says nothing.
      key_order: "declared": keys come in the order in which the schema names them, then additional keys. Branches of anyOf,
        oneOf and if that declare keys in different orders each keep theirs. "any": every order, additional keys among them.
      whitespace: "optional": one space may follow "," and ":"; "compact": none; "spaced": exactly that one space, as
        `json.dumps` writes; "indented": "optional", and after "{", "[", "," and before "}", "]" also one newline with at most
        `max_indent` spaces.
      max_indent: spaces after a newline.
      integers: where a number must be an integer. "plain": as `json.dumps` writes one, `1815` and `-3`; "all": every spelling
        that JSON allows and that is decided, such as `1815.0`, `3e0` and `-0`; in drafts 3 and 4 only `-0` besides, as there a
        number with a fraction or an exponent is no integer.
      string_escapes: "all": every spelling of a string that JSON allows, such as `\\u0061` for `a`; "shortest": characters as
        themselves, the others by their shortest escape; "where needed": "all" where a string may hold other characters than
        printable ASCII, so free text may be escaped in every way and a date may not.
      word_escapes: for keys, and for strings out of a finite list (enum, const).
      formats: "assert": a string must have its `format`; "annotate": `format` says nothing.
      unenforced_formats: what to do with a `format` of the standard that cannot be enforced exactly (idn-hostname):
        "refuse" the schema, or take it as an annotation. Formats that the standard does not know are annotations.
      unenforced: keywords out of "uniqueItems", "pattern", "format", "minProperties", "unevaluatedProperties" and
        "unevaluatedItems" that are left out where they cannot be enforced, instead of refusing the schema. The artifact lists the
        places (`CompiledConstraint.unenforced`): these are to be checked in the value. (For `compile_json_schema`.)
      additional_properties: what an object may hold besides the keys that its schema names, where the schema does not say:
        True, anything, as the standard has it; False, nothing. Objects whose schemas name no keys stay as they are.
      max_object_depth, max_array_depth: how deep objects may stand within objects, and arrays within arrays, whatever is between
        them. With one of these the artifact needs no stack: every stack within the bounds is written out (with `key_order="any"`
        every set of keys too: twice as many states for each key), and values that would nest deeper are not accepted. None is no
        bound, for what the schema itself does not nest without end. (For `compile_json_schema`; `schema_machine` refuses them.)
      max_formula: nodes of the decision diagrams of all conditions.
      max_outcomes: kinds of values that one member must be sorted into, because branches stay open after it (at most 62).
      max_product: joint states of the conditions on one string or number.
      max_controls: states of the byte machine.
      max_modulus: remainders that are kept for one `multipleOf`; those that the same digits complete count once.
      max_chain: arrays of at most this many alike elements are written out as states; longer ones are counted in a register where
        that is exact. Also the characters that may come before those that are counted.
      max_string_chain: the same for strings of at most this length; 32 compile more slowly when written out.
      max_length: largest bound on a string's length that is counted by states.
      max_count: largest bound on items or properties that is counted by states.
      max_unique: values in the domain of `uniqueItems` where it takes states: fractions are among them, integers beside
        `minItems` above 1 (or indented), or other conditions stand beside it.
      max_unique_states: over more values than this (256 at most) a set beside the stack remembers which of them an array has;
        that takes a vocabulary with a token for every byte.
      max_branches: branches that `unevaluatedProperties` or `unevaluatedItems` looks through.
      max_reordered: objects with more keys than this do not follow the order of `required` where it is another.
      max_orders: different key orders kept for one object.
    """

    draft: Draft = "auto"
    key_order: Literal["declared", "any"] = "declared"
    whitespace: Whitespace = "optional"
    max_indent: int = 64
    integers: Integers = "plain"
    string_escapes: StringEscapes = "where needed"
    word_escapes: Escapes = "shortest"
    formats: Literal["assert", "annotate"] = "assert"
    unenforced_formats: Literal["refuse", "annotate"] = "refuse"
    unenforced: Collection[str] = ()
    additional_properties: bool = True
    max_object_depth: int | None = None
    max_array_depth: int | None = None
    max_formula: int = 300_000
    max_outcomes: int = 62
    max_product: int = 20_000
    max_controls: int = 400_000
    max_modulus: int = 4_000
    max_chain: int = 32
    max_string_chain: int = 8
    max_length: int = 1_024
    max_count: int = 256
    max_unique: int = 10
    max_unique_states: int = 6
    max_branches: int = 8
    max_reordered: int = 16
    max_orders: int = 16

    @property
    def lists_patterns(self) -> bool:
        """Whether a string of printable ASCII is spelled alike where it is one of a list, and where it matches a pattern."""
        return self.word_escapes == "shortest" and self.string_escapes != "all"

    @property
    def bounds_depth(self) -> bool:
        """Whether there is a bound on how deep objects or arrays nest."""
        return self.max_object_depth is not None or self.max_array_depth is not None

    @staticmethod
    def choices(name: str) -> tuple[str, ...]:
        """What an option that is one of several words may be."""
        return _CHOICES[name]

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not is_word(value, allowed):
                raise ConstraintError(
                    f"SchemaOptions.{name} is {value!r}", fix="It may be " + ", ".join(map(repr, allowed)) + "."
                )
        if not isinstance(self.additional_properties, bool):
            what = f"SchemaOptions.additional_properties is {self.additional_properties!r:.80}"
            raise ConstraintError(what, fix="Give True or False; a schema for the additional keys goes into the schema itself.")
        several = isinstance(self.unenforced, Collection) and not isinstance(self.unenforced, (str, bytes))
        given = list(self.unenforced) if several else [self.unenforced]
        if not all(isinstance(name, str) and name in UNENFORCED for name in given):
            fix = f"It may hold {', '.join(map(repr, UNENFORCED))}."
            raise ConstraintError(f"SchemaOptions.unenforced is {self.unenforced!r:.80}", fix=fix)
        object.__setattr__(self, "unenforced", tuple(sorted(set(given))))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if not field.name.startswith("max_"):
                continue
            least = int(field.name == "max_orders")
            if not is_whole(value, least, sys.maxsize):
                range_ = "of at least 1" if least else "that is not negative"
                raise ConstraintError(f"SchemaOptions.{field.name} must be an int {range_}, not {value!r:.80}")
            object.__setattr__(self, field.name, int(value))
        if self.max_outcomes > 62:
            raise ConstraintError("SchemaOptions.max_outcomes may be 62 at most")


DEFAULT_OPTIONS = SchemaOptions()


def checked_options(options: SchemaOptions | None) -> SchemaOptions:
    """The options that were given, or the defaults; raises `ConstraintError` for what are none."""
    if options is not None and not isinstance(options, SchemaOptions):
        what = f"options must be SchemaOptions, not {type(options).__name__}"
        raise ConstraintError(what, fix='Write options=SchemaOptions(whitespace="compact"), for example.')
    return options or DEFAULT_OPTIONS
