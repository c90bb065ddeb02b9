"""Words of SQLite in all places where a name may stand: where SQLite reads one as a name, the grammar does, and nowhere else."""

from __future__ import annotations

import random
import re

from grammar.test_real_languages import accepts, judge_of
from oracles.keyword_swaps import keywords_of

from fsa_compile import library

PLACES = """
SELECT a.% FROM t; SELECT %.a FROM t; SELECT a AS % FROM t; SELECT a, % FROM t; SELECT f(%); SELECT (%); SELECT - % + %; SELECT a % FROM t
SELECT a FROM t %; SELECT a FROM t AS %, u; SELECT a FROM t % JOIN %; SELECT a FROM main.%; SELECT a FROM (SELECT 1) %; SELECT % % FROM % %
SELECT %.% FROM %.%; SELECT %(a), 1 %; SELECT %(*) %; SELECT f() % FROM t; SELECT a % b; SELECT (1) % b FROM t; SELECT a FROM u(1) % JOIN t
SELECT a FROM t WHERE % IN %; SELECT a FROM t GROUP BY % HAVING %; SELECT a FROM t ORDER BY % %; SELECT a FROM t LIMIT % OFFSET %
SELECT a COLLATE % %; SELECT CASE % WHEN % THEN % ELSE % END; SELECT CASE WHEN % THEN % END; SELECT CAST(a AS % %); SELECT CAST(% AS %)
SELECT a NOT %; SELECT a IS NOT %; SELECT DISTINCT %; SELECT % UNION SELECT %; SELECT a BETWEEN % AND %; SELECT EXISTS (SELECT %)
SELECT f() OVER %; SELECT f() OVER (%); SELECT f() OVER (% ORDER BY % %); SELECT f() OVER (PARTITION BY % ROWS 1 %); SELECT f() % (%)
SELECT a FROM t WINDOW % AS (%); SELECT a FROM t % w AS (b); SELECT f() FILTER (WHERE %) %; SELECT a FROM t JOIN u USING (%, %) %
CREATE TABLE % (% %); CREATE TABLE main.% (a, % INT); CREATE TABLE t (a % (1)); CREATE TABLE t (a INT %, CONSTRAINT % UNIQUE (%)); CREATE TABLE t (% INT AS (a))
CREATE TABLE t (a CONSTRAINT % UNIQUE % CHECK (%)); CREATE TABLE t (a REFERENCES % (%)); CREATE TABLE % AS SELECT 1; CREATE TABLE t (a DEFAULT % %)
CREATE TABLE IF NOT EXISTS % (a); CREATE TEMP TABLE % (a); CREATE INDEX % ON % (% %); CREATE VIEW % (%) AS SELECT 1; DROP TABLE %; DROP VIEW IF EXISTS %.%
INSERT INTO % VALUES (%); INSERT INTO t AS % (%, a) SELECT %; INSERT INTO t % SELECT 1; INSERT INTO t VALUES (1) ON CONFLICT (% %) DO UPDATE SET % = % RETURNING % %
UPDATE % SET % = %; UPDATE t AS % SET (%, a) = (1, 2) FROM % WHERE %; DELETE FROM % WHERE %; DELETE FROM t AS %; REPLACE INTO % VALUES (1)
WITH % (%) AS (SELECT 1) SELECT %; WITH a AS (SELECT 1), % AS (SELECT 2) SELECT 1; SELECT a IN (% AS (b)); VALUES (%); SELECT a FROM t WHERE a % %
"""
LEFT_OUT = r"from \(|\b(?:raise|generated|filter|over|window|indexed|deferrable)\b|over (?:cross|full|inner|left|natural|outer|right)|window \w+ as"


def test_words_are_names_where_sqlite_reads_them_as_names(exhaustive):
    """In each place one word that is not reserved, or two; those of joins are no names of windows, some others as the comment says."""
    draw, judge, places = random.Random(0), judge_of("sql"), re.split(r"[;\n]+ ?", PLACES.strip())
    words = [*keywords_of(library.grammar_text("sql")), "glob", "regexp", "plan", "x"]
    counts = {True: 0, False: 0}
    for _ in range(100_000 if exhaustive else 2_500):
        chosen = [draw.choice(words), draw.choice(["x", "x", draw.choice(words)])]
        text = "".join(draw.choice(chosen) if part == "%" else part for part in re.split("(%)", draw.choice(places)))
        taken, right = accepts("sql", text), judge(text)
        assert taken == right or (right and re.search(LEFT_OUT, text, re.I)), text
        counts[right] += 1
    assert min(counts.values()) > sum(counts.values()) / 5
