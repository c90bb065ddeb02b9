"""Random structural tags with free text, tags in tags and values, against a definition: from where to where a format may reach."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from typing import Any

import pytest
from interop.test_formats import accepts, built, edited, in_format

from fsa_compile.errors import ConstraintError, UnsatisfiableError

LETTERS = "<a>b"
_BEGINS = ["<", "<a", "<b>", "a<", "<a>", "<<"]
_ENDS = [">", "</", "b>", "a", ">>", "<>"]
_TEXTS = ["", "a", "b", "ab", "<", ">a", "b<"]
Ends = tuple[str, ...] | None


def random_format(rng: random.Random, depth: int) -> dict[str, Any]:
    """A format of any type; few letters, so that marks overlap with texts and each other."""
    simple = ["const_string", "any_text", "any_text", "regex", "json_schema"]
    nested = ["sequence", "or", "optional", "plus", "star", "repeat", "tag", "tag", "triggered_tags", "triggered_tags", "tags_with_separator"]
    kind = rng.choice([*simple, *nested, *nested] if depth else simple)
    made: dict[str, Any] = {"type": kind}
    if kind == "const_string":
        made["value"] = rng.choice(_TEXTS)
    elif kind == "any_text":
        made |= {"excludes": rng.sample(_ENDS, rng.randint(1, 2))} if rng.random() < 0.3 else {}
    elif kind == "regex":
        made["pattern"] = rng.choice(["[ab]*", "a|b>", "(?s:.{1,2})", "<?a", "[^<]"])
    elif kind == "json_schema":
        made["json_schema"] = rng.choice([{"enum": ["a", "ab"]}, {"enum": [1, 12]}, {"enum": [[], ["b"]]}, {"type": "boolean"}])
    elif kind in ("sequence", "or"):
        made["elements"] = [random_format(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    elif kind == "tag":
        made |= _tag(rng, depth)
    elif kind == "triggered_tags":
        triggers = rng.sample(_BEGINS, rng.randint(1, 2))
        tags = [_tag(rng, depth, rng.choice(triggers)) for _ in range(rng.randint(1, 3))]
        made |= {"triggers": triggers, "tags": tags, **{flag: rng.random() < 0.3 for flag in ("at_least_one", "stop_after_first")}}
        made |= {"excludes": [rng.choice(_ENDS)]} if rng.random() < 0.2 else {}
    elif kind == "tags_with_separator":
        made |= {"tags": [_tag(rng, depth) for _ in range(rng.randint(1, 2))], "separator": rng.choice(_TEXTS)}
        made |= {flag: rng.random() < 0.3 for flag in ("at_least_one", "stop_after_first")}
    else:
        made["content"] = random_format(rng, depth - 1)
        low = rng.randint(0, 2)
        made |= {"min": low, "max": rng.choice([-1, low, low + 2])} if kind == "repeat" else {}
    return made


def _tag(rng: random.Random, depth: int, trigger: str = "") -> dict[str, Any]:
    begin = trigger + rng.choice(["", ">", "b"]) if trigger else rng.choice(_BEGINS)
    ends = rng.sample(_ENDS, rng.choice([1, 1, 2]))
    return {"type": "tag", "begin": begin, "content": random_format(rng, depth - 1), "end": ends if len(ends) > 1 else ends[0]}


def reaches(made: dict[str, Any], text: str, at: int, ends: Ends) -> set[int]:
    """Where a format that begins at a place may end, behind one of the ends where there are any."""
    kind = made["type"]
    if kind == "any_text":
        return _free(text, at, tuple(made.get("excludes", ())), ends)
    if kind == "sequence":
        *before, last = made["elements"]
        places = {at}
        for element in before:
            places = {end for place in places for end in reaches(element, text, place, None)}
        return {end for place in places for end in reaches(last, text, place, ends)}
    if kind == "or":
        return {end for element in made["elements"] for end in reaches(element, text, at, ends)}
    if kind == "triggered_tags":
        return _triggered(made, text, at, ends)
    return _closed(_alone(made, text, at), text, ends)


def _closed(places: set[int], text: str, ends: Ends) -> set[int]:
    return places if ends is None else {place + len(end) for place in places for end in ends if text.startswith(end, place)}


def _first(text: str, at: int, marks: tuple[str, ...]) -> tuple[int, str] | None:
    """Where the mark ends that is complete first, and which it is."""
    return min([(text.index(mark, at) + len(mark), mark) for mark in marks if mark in text[at:]], default=None)


def _free(text: str, at: int, without: tuple[str, ...], ends: Ends) -> set[int]:
    if ends is None:
        return {end for end in range(at, len(text) + 1) if not any(bad in text[at:end] for bad in without)}
    found = _first(text, at, ends)
    return {found[0]} if found and not any(bad in text[at : found[0]] for bad in without if bad not in ends) else set()


def _alone(made: dict[str, Any], text: str, at: int) -> set[int]:
    """Formats that know nothing of the tag around them."""
    match made["type"]:
        case "const_string":
            return {at + len(made["value"])} if text.startswith(made["value"], at) else set()
        case "regex":
            return {end for end in range(at, len(text) + 1) if re.fullmatch(made["pattern"], text[at:end])}
        case "json_schema":
            values = made["json_schema"].get("enum", [False, True])
            return {at + len(spelled) for spelled in map(json.dumps, values) if text.startswith(spelled, at)}
        case "tag":
            return _tagged(made, text, at)
        case "tags_with_separator":
            return _separated(made, text, at)
    low, high = {"optional": (0, 1), "plus": (1, -1), "star": (0, -1), "repeat": (made.get("min"), made.get("max"))}[made["type"]]
    return _times(lambda place: reaches(made["content"], text, place, None), at, low, high)


def _times(step: Any, at: int, low: int, high: int) -> set[int]:
    """Where `low` to `high` steps may lead; -1: any number."""
    now, found, seen = {at}, set[int](), set[int]()
    for count in itertools.count():
        if count >= low:
            found |= now
        if count == high or (count > low and now <= seen):
            return found
        seen |= now if count >= low else set()
        now = {end for place in now for end in step(place)}
        if not now:
            return found
    raise AssertionError


def _tagged(tag: dict[str, Any], text: str, at: int) -> set[int]:
    ends = (tag["end"],) if isinstance(tag["end"], str) else tuple(tag["end"])
    return reaches(tag["content"], text, at + len(tag["begin"]), ends) if text.startswith(tag["begin"], at) else set()


def _separated(made: dict[str, Any], text: str, at: int) -> set[int]:
    def one(place: int) -> set[int]:
        return {end for tag in made["tags"] for end in _tagged(tag, text, place)}

    def more(place: int) -> set[int]:
        return {end for behind in _alone({"type": "const_string", "value": made["separator"]}, text, place) for end in one(behind)}

    none = set() if made["at_least_one"] else {at}
    first = one(at)
    return none | first if made["stop_after_first"] else none | {end for place in first for end in _times(more, place, 0, -1)}


def _triggered(made: dict[str, Any], text: str, at: int, ends: Ends) -> set[int]:
    triggers, without = tuple(made["triggers"]), tuple(made.get("excludes", ()))

    def clean(place: int, end: int) -> bool:
        return not any(bad in text[place:end] for bad in without)

    def last(place: int) -> set[int]:
        """Free text to the end, in which no trigger is complete."""
        if ends is None:
            return {e for e in range(place, len(text) + 1) if clean(place, e) and not any(t in text[place:e] for t in triggers)}
        found = _first(text, place, triggers + ends)
        return {found[0]} if found and found[1] in ends and clean(place, found[0]) else set()

    def one(place: int) -> set[int]:
        """Free text, and the tag of the first trigger."""
        found = _first(text, place, triggers + (ends or ()))
        if found is None or found[1] not in triggers or not clean(place, found[0]):
            return set()
        begin = found[0] - len(found[1])
        return {end for tag in made["tags"] if tag["begin"].startswith(found[1]) for end in _tagged(tag, text, begin)}

    first = {end for tag in made["tags"] for end in _tagged(tag, text, at)} if made["at_least_one"] else one(at)
    if made["stop_after_first"]:
        return _closed(first, text, ends) | (set() if made["at_least_one"] else last(at))
    places = {end for place in first for end in _times(one, place, 0, -1)} | (set() if made["at_least_one"] else {at})
    return {end for place in places for end in last(place)}


def sampled(made: dict[str, Any], rng: random.Random, ends: tuple[str, ...] = ("",)) -> str:
    """A text near the format, more often in it than not."""
    match made["type"]:
        case "const_string":
            out = made["value"]
        case "json_schema":
            out = json.dumps(rng.choice(made["json_schema"].get("enum", [False, True])))
        case "sequence":
            out = "".join(sampled(element, rng) for element in made["elements"])
        case "or":
            out = sampled(rng.choice(made["elements"]), rng)
        case "tag":
            out = made["begin"] + sampled(made["content"], rng, (made["end"],) if isinstance(made["end"], str) else made["end"])
        case "triggered_tags" | "tags_with_separator":
            between = [made["separator"]] if "separator" in made else ["", "a", "b"]
            out = rng.choice(between).join(sampled(rng.choice(made["tags"]), rng) for _ in range(rng.randint(0, 2)))
        case "optional" | "star" | "plus" | "repeat":
            out = "".join(sampled(made["content"], rng) for _ in range(rng.randint(0, 2)))
        case _:
            out = "".join(rng.choices(LETTERS, k=rng.randint(0, 2)))
    return out + rng.choice(list(ends))


def one_case(rng: random.Random) -> Counter[str]:
    """A format, and texts short and long."""
    made = random_format(rng, 3)
    try:
        machine = built(in_format(made))
    except UnsatisfiableError:
        machine = None
    except ConstraintError:
        return Counter(refused=1)
    counts = Counter(made=1)
    texts = ["".join(rng.choices(LETTERS, k=rng.randint(0, 6))) for _ in range(30)]
    texts += [edited(sampled(made, rng), rng, LETTERS + '"1') for _ in range(30)] + [sampled(made, rng) for _ in range(10)]
    for text in dict.fromkeys(texts):
        truth = len(text) in reaches(made, text, 0, None)
        assert (machine is not None and accepts(machine, text)) == truth, (made, text, truth)
        counts.update(["checks", f"texts {truth}"])
    return counts


@pytest.mark.exhaustive
def test_random_structural_tags(tally):
    for rng in tally.cases(150, least=20_000):
        tally.update(one_case(rng))
    assert tally["made"] > tally["refused"]
    assert min(tally["texts True"], tally["texts False"]) > 5 * tally["made"]
