"""TEXT_TOKEN, PARAGRAPH_TOKEN, IMAGE: against all short strings of tokens, read by a plain matcher."""

from __future__ import annotations

import re

import pytest
from oracles.token_strings import check_all_token_strings
from oracles.toy import every_byte

import fsa_compile
from fsa_compile import Vocabulary, acceptor, choices, compile_language, compile_regex, literal, regex
from fsa_compile.errors import ConstraintError, LimitError, RegexSyntaxError, UnsatisfiableError
from fsa_compile.extensions import image, paragraph_token, special_token, substring_of, text_token

TOKENS = [b"a", b"b", b"ab", b"\n", b"a\n", "é".encode(), b"\xc3", b"\xa9", b"\xa9b", b"b\xc3", b"1", b"", b"", b"", b""]
IMG, BEGIN, END, STOP = range(11, 15)
VOCABULARY = Vocabulary.from_tokens(TOKENS, special={"<img>": IMG, "<boi>": BEGIN, "<eoi>": END, "<eos>": STOP}, stop_ids=[STOP])


def matcher(*parts):
    """Whether token ids can be cut, between tokens at token parts, so that every part matches.

    A part is a compiled pattern, "T" (a text token), "P" (one without line breaks), or a set of ids; `(part, low, high)`
    repeats one. The text is UTF-8 as a whole and every pattern's share is.
    """

    def good(ids) -> bool:
        todo, seen = [(0, 0, 0, False)], set()
        while todo:
            state = todo.pop()
            if state in seen:
                continue
            seen.add(state)
            at, part, count, inside = state  # inside: any-tokens so far end within a character
            if part == len(parts):
                if at == len(ids) and not inside:
                    return True
                continue
            what, low, high = parts[part] if isinstance(parts[part], tuple) else (parts[part], 1, 1)
            if count >= low:
                todo.append((at, part + 1, 0, inside))
            if count == high:
                continue
            if isinstance(what, re.Pattern):
                if inside:
                    continue
                for end in range(at, len(ids) + 1):
                    if all(TOKENS[i] for i in ids[at:end]):
                        try:
                            text = b"".join(TOKENS[i] for i in ids[at:end]).decode()
                        except UnicodeDecodeError:
                            continue
                        if what.fullmatch(text):
                            todo.append((end, part, count + 1, False))
            elif at < len(ids) and isinstance(what, frozenset):
                if ids[at] in what and not inside:
                    todo.append((at + 1, part, count + 1, False))
            elif at < len(ids) and TOKENS[ids[at]]:
                data = TOKENS[ids[at]]
                if what == "P" and b"\n" in data:
                    continue
                ends = ends_inside(data, inside)
                if ends is not None:
                    todo.append((at + 1, part, count + 1, ends))
        return False

    return good


def ends_inside(data: bytes, inside: bool) -> bool | None:
    """Whether bytes end within a character; None when they are no part of a text. Only é is split in this vocabulary."""
    whole = (b"\xc3" if inside else b"") + data
    for cut, more in ((whole, False), (whole[:-1], True)):
        if more and whole[-1:] != b"\xc3":
            return None
        try:
            cut.decode()
        except UnicodeDecodeError:
            continue
        return more
    return None


def p(pattern: str) -> re.Pattern:
    return re.compile(pattern)


CASES = [
    ("(?P<TEXT_TOKEN>)", matcher("T")),
    ("a(?P<TEXT_TOKEN>)b?", matcher(p("a"), "T", p("b?"))),
    ("(?P<TEXT_TOKEN>)*", matcher(("T", 0, 99))),
    ("(?P<TEXT_TOKEN>){1,2}", matcher(("T", 1, 2))),
    ("(?P<PARAGRAPH_TOKEN>)*\\n", matcher(("P", 0, 99), p("\n"))),
    ("(?:a|ab)*(?P<PARAGRAPH_TOKEN>){2}b*", matcher(p("(?:a|ab)*"), ("P", 2, 2), p("b*"))),
    ("é?(?P<TEXT_TOKEN>)é", matcher(p("é?"), "T", p("é"))),
    ("(?P<TEXT_TOKEN>)(?P<PARAGRAPH_TOKEN>)(?P<TEXT_TOKEN>)?", matcher("T", "P", ("T", 0, 1))),
    ("a*(?P<IMAGE><img>)+b", matcher(p("a*"), (frozenset({IMG}), 1, 99), p("b"))),
    ("[aé]*(?P<IMAGE><img>|<boi>)(?P<PARAGRAPH_TOKEN>)?[\\U00100000-\\U0010ffffé]?", matcher(p("[aé]*"), frozenset({IMG, BEGIN}), ("P", 0, 1), p("é?"))),
    (".(?P<IMAGE><img>)?.", lambda ids: matcher(p(".."))(ids) or matcher(p("."), frozenset({IMG}), p("."))(ids)),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "good"), CASES, ids=[c[0] for c in CASES])
def test_every_token_string(pattern, good, exhaustive):
    seen = check_all_token_strings(compile_regex(pattern, VOCABULARY), len(TOKENS), STOP, 4 if exhaustive else 3, good)
    assert seen > 5


LANGUAGES = [
    (text_token() + literal("b") | regex("a+"), lambda ids: matcher("T", p("b"))(ids) or matcher(p("a+"))(ids)),
    (image(["<img>"], begin="<boi>", end="<eoi>", high=2) + regex("a?"), matcher(frozenset({BEGIN}), (frozenset({IMG}), 1, 2), frozenset({END}), p("a?"))),
    (special_token("<img>", END) + paragraph_token(), matcher(frozenset({IMG, END}), "P")),
    (regex("a?(?P<I>)b?", extensions={"I": special_token("<img>")}) - regex("a?(?P<I>)", extensions={"I": special_token(IMG, "<img>")}), matcher(p("a?"), frozenset({IMG}), p("b"))),
    (regex("(?P<I>)+(?P<T>)", extensions={"I": special_token(IMG), "T": substring_of("éab")}), matcher((frozenset({IMG}), 1, 99), p("|é|éa|éab|a|ab|b"))),
    (~special_token("<img>") & regex("ab?"), matcher(p("ab?"))),
    (choices(["a", "é"]) | special_token("<eoi>"), lambda ids: matcher(p("[aé]"))(ids) or ids == (END,) or list(ids) == [END]),
]  # fmt: skip


@pytest.mark.parametrize(("language", "good"), LANGUAGES, ids=[str(i) for i in range(len(LANGUAGES))])
def test_algebra(language, good, exhaustive):
    check_all_token_strings(compile_language(language, VOCABULARY), len(TOKENS), STOP, 4 if exhaustive else 3, good)


def test_a_name_and_an_id_of_one_token_are_two_symbols_for_the_operators():
    """Operators work before the vocabulary is known; after that the two are one token."""
    both = special_token("<img>") | special_token(IMG)
    walk = compile_language(both, VOCABULARY).walk()
    assert walk.allowed().nonzero()[0].tolist() == [IMG]


def test_all_bytes_and_wide_sets():
    """Large token sets are stored as rows; masks are those of the byte automaton and all text tokens."""
    vocabulary = every_byte()
    walk = compile_regex("[a-z ]{0,5}(?P<PARAGRAPH_TOKEN>){1,3}\\n", vocabulary).walk()
    allowed = walk.allowed()
    for token, written in enumerate(vocabulary.tokens):
        starts = re.fullmatch(rb"[a-z ]{1,5}", written)
        utf8 = written and not re.match(rb"[\x80-\xc1\xf5-\xff]", written)
        if written and b"\n" not in written and b"\r" not in written and written.isascii():
            assert allowed[token]
        if not starts and not utf8:
            assert not allowed[token]
        if b"\n" in written and not starts:
            assert not allowed[token]
    for token in (vocabulary.tokens.index(b"a"), vocabulary.tokens.index(b"\xc3"), vocabulary.tokens.index(b"\xa9"), vocabulary.tokens.index(b"\n")):
        walk.advance(token)
    assert walk.accepting


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: compile_regex("(?P<IMAGE><pic>)", VOCABULARY), "no special token '<pic>'"),
        (lambda: compile_regex("(?P<IMAGE><eos>)", VOCABULARY), "ends the text"),
        (lambda: compile_language(special_token(0), VOCABULARY), "is the text b'a'"),
        (lambda: compile_language(special_token(99), VOCABULARY), "no special token 99"),
        (lambda: regex("(?P<IMAGE><img>)").to_byte_dfa(), "which are no bytes"),
        (lambda: text_token() & regex("a"), "& cannot be used with TEXT_TOKEN"),
        (lambda: regex("a") - text_token(), "- cannot be used with"),
        (lambda: ~paragraph_token(), "~ cannot be used with"),
        (lambda: special_token(), "no special token is named"),
        (lambda: special_token(True), "neither the name nor the id"),
        (lambda: image("<img>"), "no list"),
        (lambda: image(["<img>"], low=2, high=1), "2 to 1 tokens"),
        (lambda: compile_language(acceptor((0, [1], {0: {b"a": 1}})) + text_token(), VOCABULARY), "automaton over bytes"),
        (lambda: compile_regex(literal("a"), VOCABULARY, extensions={"A": literal("a")}), "is a language already"),
    ],
)
def test_errors(make, says):
    with pytest.raises(ConstraintError, match=says) as caught:
        make()
    assert caught.value.fix


def test_errors_in_patterns():
    with pytest.raises(RegexSyntaxError, match="IMAGE needs an argument"):
        regex("(?P<IMAGE>)")
    with pytest.raises(RegexSyntaxError, match="takes no argument"):
        regex("(?P<TEXT_TOKEN>a)")
    with pytest.raises(UnsatisfiableError):
        compile_language(special_token("<img>") & regex(".*"), VOCABULARY)
    with pytest.raises(LimitError, match="max_states"):
        compile_regex("(?P<TEXT_TOKEN>)*a(?P<TEXT_TOKEN>){12}", VOCABULARY, limits=fsa_compile.CompileLimits(max_states=500))


def test_image_of_many_tokens():
    tokens = [b"a", *[b""] * 500]
    vocabulary = Vocabulary.from_tokens(tokens, special={f"<{i}>": i for i in range(1, 501)}, stop_ids=[500])
    picture = regex("a*(?P<IMAGE>)a", extensions={"IMAGE": image(range(1, 400), low=3, high=64)})
    walk = compile_language(picture, vocabulary).walk()
    for token in (0, 5, 6):
        walk.advance(token)
    assert not walk.allowed()[0]
    walk.advance(399)
    assert walk.allowed().nonzero()[0].tolist() == list(range(400))
