"""Pydantic models, and pydantic as the judge: whatever is accepted, `TypeAdapter(T).validate_json` accepts too, with the same value."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import re
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Self, TypeVar

import pytest

pydantic = pytest.importorskip("pydantic")

import annotated_types as at  # noqa: E402
import typing_extensions  # noqa: E402
from oracles.toy import every_byte  # noqa: E402
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, RootModel, StringConstraints, TypeAdapter, field_validator  # noqa: E402
from python_types.walks import random_text  # noqa: E402

from fsa_compile.limits import CompileLimits, Deadline  # noqa: E402
from fsa_compile.python_types import TypeTextError, UnsupportedTypeError, compile_type, dump, machine_of_type, parse, shape_of  # noqa: E402

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    TWO = 2


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = Field(9, gt=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: Annotated[str, StringConstraints(min_length=1, max_length=5, pattern=r"^[a-z]+$")]


class Node(BaseModel):
    value: float
    below: list[Node] = []


class Pair(BaseModel, Generic[T]):
    left: T
    right: T | None = None


class Chain(BaseModel, Generic[T]):
    first: T
    rest: Chain[T] | None = None
    same: Self | None = None
    others: list[Chain[T]] = []


class Numbers(RootModel[list[int]]):
    pass


class Everything(BaseModel):
    model_config = ConfigDict(frozen=True)
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    when: datetime.datetime | None = None
    size: Annotated[float, at.Interval(ge=0, lt=1)] = Field(0.5, alias="theSize")
    colors: set[Color] = set()
    price: decimal.Decimal = Field(decimal.Decimal(1), gt=0, multiple_of=decimal.Decimal("0.01"))


TYPES: dict[str, Any] = {
    "int": int, "float": float, "str": str, "decimal": decimal.Decimal, "date": datetime.date, "datetime": datetime.datetime,
    "time": datetime.time, "timedelta": datetime.timedelta, "uuid": uuid.UUID, "aware": AwareDatetime, "uuid4": pydantic.UUID4,
    "positive": pydantic.PositiveInt, "positive float": pydantic.PositiveFloat, "negative float": pydantic.NegativeFloat,
    "below one": Annotated[float, at.Lt(1)], "above a tenth": Annotated[float, at.Gt(0.1)], "step": Annotated[float, Field(multiple_of=0.25, ge=-3)],
    "listed": Literal["a", 1, True, None], "enum": Color, "cat": Cat, "dog": Dog, "node": Node, "pair": Pair[int], "chain": Chain[Pair[bool]], "numbers": Numbers, "everything": Everything,
    "decimal below": Annotated[decimal.Decimal, Field(gt=0.1, lt=0.3)], "float above": Annotated[float, Field(gt=decimal.Decimal("0.1"), lt=2**53 + 1)],
    "escapes": Annotated[str, Field(pattern=re.compile(r"^[\[a\-\--\.&\.&]\[&&$"))], "dict": dict[int, datetime.date], "word": Annotated[str, Field(pattern=r"^\d+\.?$|x[a-c]{2}", max_length=9)],
}  # fmt: skip


@functools.cache
def machine(name, style="json"):
    limits = CompileLimits()
    return machine_of_type(shape_of(TYPES[name]), style, None, limits, Deadline(limits))


@pytest.mark.parametrize("name", TYPES)
def test_pydantic_accepts_what_is_accepted(name, exhaustive):
    adapter, found = TypeAdapter(TYPES[name]), 0
    for seed in range(500 if exhaustive else 20):
        text = random_text(machine(name), seed, eager=12)
        if text is not None:
            value = parse(TYPES[name], text)
            judged = adapter.validate_json(text)
            assert judged == value or isinstance(value, (set, frozenset)), text
            assert type(judged) is type(value), text
            found += 1
    assert found > 5


VALUES: dict[str, list[Any]] = {
    "cat": [Cat(), Cat(lives=1)],
    "dog": [Dog(kind="dog", name="rex")],
    "node": [Node(value=-1.5e-9, below=[Node(value=1e22)])],
    "pair": [Pair[int](left=1), Pair[int](left=1, right=-2)],
    "chain": [Chain[Pair[bool]](first=Pair[bool](left=True), rest=Chain[Pair[bool]](first=Pair[bool](left=False)))],
    "numbers": [Numbers([]), Numbers([1, 2])],
    "everything": [
        Everything(pet=Cat()),
        Everything(pet=Dog(kind="dog", name="a"), when=datetime.datetime(1, 1, 1, 23, 59, 59, 1, datetime.UTC), theSize=0.25, colors={Color.TWO}, price="9.99"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_models_come_back(name):
    for value in VALUES[name]:
        text = dump(TYPES[name], value)
        assert machine(name).accepts(text.encode()), text
        assert parse(TYPES[name], text) == value
        own = value.model_dump_json(by_alias=True)  # its decimals are strings
        assert name == "everything" or machine(name).accepts(own.encode()), own
        if name != "everything":
            text = dump(TYPES[name], value, style="python")
            assert machine(name, "python").accepts(text.encode()), text
            assert parse(TYPES[name], text, style="python") == value


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("cat", ['{"lives": 0}', '{"lives": 10}', '{"kind": "dog"}', '{"lives": 1, "kind": "cat"}', '{"x": 1}']),
        ("dog", ['{"kind": "dog"}', '{"kind": "dog", "name": ""}', '{"kind": "dog", "name": "abcdef"}', '{"kind": "dog", "name": "a\\n"}']),
        ("everything", ['{"pet": {"kind": "cat"}, "theSize": 1}', '{"pet": {"kind": "cat"}, "size": 0.5}', '{"pet": {"kind": "cow"}}', '{"pet": {}, "price": 0.001}']),
        ("below one", ["1", "0.99999999999999999999", "1.5"]),
        ("decimal below", ["0.1", "0.3", "0.30"]),
        ("float above", ["0.1", "0.10", "9007199254740992"]),
        ("above a tenth", ["0.1", "0.10000000000000000000001"]),
        ("positive float", ["0", "-1", "0.0e9", "1e-999"]),
        ("aware", ['"2024-02-29T12:00:00"', '"2023-02-29T12:00:00Z"', '"0000-01-01T00:00:00Z"']),
    ],
)
def test_refused_texts(name, texts):
    assert [text for text in texts if machine(name).accepts(text.encode())] == []


class Checked(BaseModel):
    even: int

    @field_validator("even")
    @classmethod
    def is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


class Keyed(typing_extensions.TypedDict):
    b: str


class Short(typing_extensions.TypedDict):
    __pydantic_config__ = ConfigDict(str_min_length=5)
    b: str


@dataclasses.dataclass
class Plain:
    b: str


class Own(BaseModel):
    b: str
    plain: Plain | None = None


class Row(NamedTuple):
    b: str


Name = NewType("Name", str)
Names = typing_extensions.TypeAliasType("Names", list[str])
LONG = Annotated[str, Field(max_length=6)]


@pytest.mark.parametrize(
    "made",
    [
        str, list[str], str | None, LONG, list[LONG], LONG | None, Annotated[str | None, Field(max_length=6)], Annotated[str | list[str], Field(max_length=6)], Name,
        Names, dict[str, None], Annotated[str, Field(min_length=1)], Annotated[str, Field(pattern="^1")], tuple[str, ...], Keyed, Short, Plain, Own, Row, Any, list,
        Literal["12345"], dict, tuple[Plain, Own],
    ],
    ids=str,
)  # fmt: skip
def test_lengths_of_a_config(made):
    """They hold for every str in the model that says nothing of its own, but not in classes with configs of their own."""
    record = pydantic.create_model("Made", __config__=ConfigDict(str_max_length=4), x=made)
    limits = CompileLimits()
    found = machine_of_type(shape_of(record), "json", None, limits, Deadline(limits))
    accepted = 0
    for form in ("%s", "[%s]", '{"b": %s}', "{%s: null}", '[{"b": %s}, {"b": "1"}]', '[{"b": "1"}, {"b": %s}]', '[{"b": "1"}, {"b": "1", "plain": {"b": %s}}]'):
        for word in ('"1"', '"12345"', '"1234567"'):
            text = '{"x": ' + form.replace("%s", word) + "}"
            if found.accepts(text.encode()):
                accepted += 1
                record.model_validate_json(text)
            elif made is not Row:  # which pydantic reads from an object, too
                with pytest.raises(pydantic.ValidationError):
                    record.model_validate_json(text)
    assert accepted


def test_validators_are_refused_or_run():
    with pytest.raises(UnsupportedTypeError, match=r"is_even.*code(.|\n)*Checked(.|\n)*allow_code"):
        compile_type(Checked, every_byte())
    assert parse(Checked, '{"even": 2}', allow_code=True) == Checked(even=2)
    with pytest.raises(TypeTextError, match="odd"):
        parse(Checked, '{"even": 3}', allow_code=True)


def model(**fields: Any) -> type[BaseModel]:
    return pydantic.create_model("Made", **fields)


@pytest.mark.parametrize(
    ("made", "place"),
    [
        (model(x=(Annotated[str, pydantic.AfterValidator(str.lower)], ...)), "Made.x"),
        (model(x=(Annotated[str, at.Predicate(str.isdigit)], ...)), "Made.x"),
        (model(x=(Annotated[str, StringConstraints(strip_whitespace=True)], ...)), "Made.x"),
        (model(x=(Annotated[str, Field(pattern=r"^\W$")], ...)), "Made.x"),
        *[(model(x=(Annotated[str, Field(pattern=p)], ...)), "Made.x") for p in (r"[^\d]", r"[^\]\w]", r"^\<a", "[a&&b]", "[ab~~b]", "[a[b]]", "[[:alpha:]]", "[+--]")],
        *[(model(x=(Annotated[str, Field(pattern=re.compile("a b", flag))], ...)), "Made.x") for flag in (re.X, re.I, re.A)],
        (model(x=(list[bytes], ...)), "Made"),
        (model(x=(bytes, ...)), "Made"),
        (model(x=(Annotated[decimal.Decimal, Field(max_digits=3)], ...)), "Made.x"),
        (model(x=(int, Field(validation_alias=pydantic.AliasChoices("a", "b")))), "Made.x"),
        (model(x=(pydantic.AnyUrl, ...)), "Made.x"),
    ],
)  # fmt: skip
def test_refused_models(made, place):
    with pytest.raises(UnsupportedTypeError) as error:
        compile_type(made, every_byte())
    assert error.value.place.startswith(place)
    assert error.value.fix


class Tone(enum.Enum):
    RED = "red"


class Rank(enum.IntEnum):
    FIRST = 1


class Open(pydantic.BaseModel, extra="allow"):
    tone: Literal[Tone.RED]
    rank: Rank | int = 2


def test_what_the_limits_say():
    """Where `parse` and pydantic part: a member of a plain enum in a Literal; and fields that a class does not name."""
    limits = CompileLimits()
    accepts = machine_of_type(shape_of(Open), "json", None, limits, Deadline(limits)).accepts
    assert accepts(b'{"tone": "red", "rank": 1}')
    assert not accepts(b'{"tone": "red", "rank": 1, "more": 1}')
    value = parse(Open, '{"tone": "red", "rank": 1}')
    assert (value.tone, type(value.rank)) == (Tone.RED, int)
    assert type(TypeAdapter(Rank | int).validate_json("1")) is int
    with pytest.raises(pydantic.ValidationError, match=r"Input should be <Tone\.RED"):
        Open.model_validate_json('{"tone": "red"}')


class Letter(enum.Enum):
    A = "a"
    B = "b"


class Name(enum.StrEnum):
    X = "x"


class InsideByMember(BaseModel):
    letter: Letter


class ByValue(BaseModel, use_enum_values=True):
    """Keeps members of enums as their values, but for defaults; what is inside has a config of its own."""

    letter: Letter
    letters: dict[Letter, list[Letter]] = {}
    either: Letter | int = 3
    listed: Literal[Name.X, "z"] = "z"
    default: Letter = Letter.A
    inside: InsideByMember | None = None


@pytest.mark.parametrize("style", ["json", "python"])
def test_members_of_enums_are_written_however_the_model_keeps_them(style):
    text = '{"letter": "b", "letters": {"a": ["b"]}, "either": "a", "listed": "x", "default": "b", "inside": {"letter": "a"}}'
    value = ByValue.model_validate_json(text)
    assert (value.letter, value.inside.letter) == ("b", Letter.A)
    written = dump(ByValue, value, style=style)
    assert written == text or style == "python"
    assert parse(ByValue, written, style=style) == value
    default = ByValue(letter=Letter.B)
    assert default.default is Letter.A
    assert '"default": "a"' in dump(ByValue, default)
    with pytest.raises(TypeTextError, match="'b' is not one of the listed values"):
        dump(InsideByMember, InsideByMember.model_construct(letter="b"))


@dataclasses.dataclass
class Box(Generic[T]):
    item: T


@dataclasses.dataclass
class First:
    boxed: Box[Self] | None
    many: Box[list[Self] | None] | None = None
    later: tuple[Self, Later] | None = None


@dataclasses.dataclass
class Second:
    letter: Letter
    later: tuple[Self, Later] | None = None


@dataclasses.dataclass
class Later:
    of: First | Second


def test_self_is_the_class_around_it():
    """In arguments of generic classes too, and where two classes have the same annotation."""
    inside = First(None)
    value = First(Box(First(Box(inside))), Box([inside]), (inside, Later(Second(Letter.A, (Second(Letter.B), Later(inside))))))
    assert parse(First, dump(First, value)) == value
    texts = ['{"boxed": {"item": {"item": null}}}', '{"boxed": null, "later": [{"letter": "a"}, {"of": {"boxed": null}}]}']
    texts.append('{"boxed": null, "many": null, "later": [{"boxed": null}, {"of": {"letter": "a", "later": [{"boxed": null}, null]}}]}')
    for text in texts:
        with pytest.raises(TypeTextError):
            parse(First, text)
