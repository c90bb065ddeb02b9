"""What is kept between compilations has a bounded size, and nothing else stays."""

import gc
import itertools
import statistics
import threading

import pytest

from fsa_compile import Vocabulary, compile_grammar, compile_json_schema
from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.composition.pushdown.summaries import forget_summaries
from fsa_compile.grammar.lexing import terminal_automata, terminal_patterns, terminals
from fsa_compile.json_schema import patterns, scalars
from fsa_compile.json_schema import patterns as schema_patterns
from fsa_compile.vocabulary.vocabulary_tables import tables_for

LETTERS = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], stop_ids=[256])


def test_a_memo_keeps_what_was_used_last():
    memo: SizedMemo[str] = SizedMemo(40, len)
    made = []

    def get(key, size=3):
        return memo.get(key, lambda: made.append(key) or str(key)[0] * size)

    for key in (*range(10), 0, 10, 0):
        get(key)
    assert made == list(range(11))
    assert len(memo) == 10
    get(1)  # used longest ago, so dropped
    assert made[-1] == 1
    assert len(get("large", 20)) == len(get("large", 20)) == 20
    assert made[-2:] == ["large", "large"]  # too large to be kept
    assert memo.size <= 40
    memo.clear()
    assert (len(memo), memo.size) == (0, 0)
    with pytest.raises(KeyError):
        memo.get("a", lambda: {}["a"])


def test_threads_share_a_memo():
    memo: SizedMemo[int] = SizedMemo(100, lambda _: 3)
    wrong = []

    def work(seed):
        for i in range(2_000):
            key = (i * seed) % 61
            if memo.get(key, lambda key=key: key * 2) != key * 2:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 7, 11, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert memo.size <= 100
    assert memo.size == 4 * len(memo)


def test_nothing_else_stays(exhaustive):
    """Objects per schema that the collector still finds once everything that is kept on purpose is forgotten; in most of
    some rounds, since something else in the process may add some once."""

    def compiled(i):
        schema = {"type": "object", "properties": {f"key{i}": {"type": "string", "pattern": f"^x{i}[a-z]*$"}, "n": {"type": "integer", "minimum": i}}}
        compile_json_schema(schema, LETTERS)
        compile_grammar(f'start: "a{i}" /b{i}[0-9]+/', LETTERS)

    automata = terminal_automata._cache, terminal_automata._first_matches, terminal_automata._matches
    lexing = *automata, terminal_patterns._ordered, terminals._kept_looks

    def objects():
        for memo in (scalars._NUMBERS, schema_patterns._FOUND, *lexing):
            memo.clear()
        patterns.listed_words.cache_clear()
        forget_summaries()
        tables_for(LETTERS).memo.clear()
        tables_for(LETTERS).set_memo.clear()
        gc.collect()
        return len(gc.get_objects())

    settled, rounds, count = (1_000, 1, 1_000) if exhaustive else (225, 3, 25)  # what other tests left goes within some 200
    found = []
    for i in range(settled + rounds * count):
        if i >= settled and (i - settled) % count == 0:
            found.append(objects())
        compiled(i)
    found.append(objects())
    assert statistics.median(after - before for before, after in itertools.pairwise(found)) < 2 * count, found
