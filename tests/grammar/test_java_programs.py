"""`java` of the library against javac's parser: the shared programs, and changed ones."""

from __future__ import annotations

import base64
import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from oracles.grammar_checks import library_machine
from oracles.keyword_swaps import keywords_of, with_keyword

from fsa_compile import library

PROGRAM = """package a.b;
import java.util.*;
import static java.lang.Math.max;

@SuppressWarnings("unchecked")
public final class Shapes<T extends Comparable<T>> extends Base implements Runnable, Iterable<Map.Entry<String, List<int[]>>> {
    private static final int[][] SIZES = {{1, 2}, {0x1F, 'c'}, {}};
    Map<String, Map<Integer, ? extends T>> known = new HashMap<>(), other;
    enum Kind { SMALL, LARGE(2) { void f() {} }; final int n = 1; }
    record Point(int x, double y) implements Comparable<Point> { static int z; }
    interface Walk { <A> A go(A a) throws java.io.IOException, Wrong; default void stop() {} }
    static { count = 0; }
    public Shapes(final int n, String[] rest) { super(n); this.n = n; }
    @Override
    public synchronized <A> List<A> run(A a[], int b) throws Wrong {
        int i = 0, j[] = new int[3];  /* a comment * */
        for (int k = 0, m = j.length; k < m && !done; k++, i -= 2) if (k % 2 == 0) continue; else if (k > 5) break; else i++;
        for (final String s : names) { total += s.isEmpty() ? 1 : (int) -s.length(); }
        outer: while (true) { do { i--; } while (i > 0); break outer; }
        switch (i) { case 1: case -2: return null; default: f(); }
        switch (kind) { case SMALL, LARGE -> f(); default -> { throw new Wrong("x" + 1.5f + .5e3 + 10L); } }
        try (Reader r = open(); var w = other()) { r.read(); } catch (Wrong | Other e) { } finally { close(); }
        Runnable r = () -> { run(); }; f((x, y) -> x < y ? -1 : 1, (int z) -> z, String::valueOf, int[]::new, p -> (List<T>) p);
        synchronized (this) { assert i > 0 : "message"; }
        ((Shapes<T>) r).run(new Runnable() { public void run() { } }, (i << 2) >>> 1 | ~i ^ 3)[0].next = int.class;
        var t = r instanceof Runnable q && q != null || r instanceof int[];
        i = j[i] = (a) + (b); ++i; new Thread(r).start();
        return Collections.emptyList();
    }
}
"""
"""Uses most of what the grammar has."""

MORE = """@Retention(value = A.B) @A({1, C.class, @D("x" + "y"),}) @interface Marked { int of() default -1; String[] names() default {}; int N = 1, M = 2; }
public sealed abstract class Node<T> implements Walk permits Leaf, a.b.Inner {
    static final long SERIAL = -8959710146498202869L, MOST = 9223372036854775807L, BITS = 0xFF_FFL; int million = 1_000_000, big = 2147483647;
    String text = \"\"\"
        some "quoted" ""text\\
        \\"\"\" end\"\"\" + "\\u00e9\\u0041	", c = '\\u0022' + "";
    non-sealed class Leaf extends Node<int[]> { }
    record Pair(int record, String... rest) { Pair { int permits = record; } }
    int record() { return this.record + sealed; }
    void run(Map<String, List<int[]>> known, final Object... rest) throws Wrong {
        int kind = switch (rest.length) { case 0, -1 -> 2; case LARGE + 1 -> { yield 3; } default -> throw new Wrong(); } + 1;
        String old = switch (kind) { case 1: case 2: yield "a"; default: yield (b); };
        Function<String, Integer> f = Integer::parseInt, g = (F & a.Other) x -> x.size(), h = (F) short[].class;
        f = (F) int[]::new; known = (Map<String, List<? super int[]>>) (Object) rest; run((A<B>) () -> { }, (A) String::<B>of);
        if (kind > 1) for (int i : rest) if (i > 2) kind++; else kind <<= 2;
        do if (kind > 1) kind--; else kind++; while (kind > 9);
        try (known; this.open; var record = Collections.<A>emptyList()) { } catch (final Wrong e) { }
        if (rest instanceof List<?> list && list instanceof final A a && kind < 3 || !(kind instanceof int[])) Walk.super.run();
        interface Local { } enum Here { A, @B C } @D final class There { } new Outer().new Inner<>() { }; kind++ ++;
        for (Record record : records) record.run(); sealed = 3; Thread.yield();
    }
}
"""
"""Uses the rest."""

REFUSED = (
    "class", "class A", "class A {", "int x;", "class A { int; }", "class A { void f() { x; } }", "class A { void f() { 1 + 2; } }",
    "class A { void f() { if x {} } }", "class A { void f() { else {} } }", "class A { void f() { int x = ; } }", "class A { void f( {} }",
    "class A { void f() { return } }", "class A { int x = 1__; }", "class A { String s = \"a; }", "class A { char c = ''; }",
    "class A { void f() { for (;) {} } }", "class A { void f() { try {} } }", "class A { void f() { f()(); } }", "class class {}",
    "class A { List<> x; }", "class A { void f() { a[] = 1; } }", "class A { void f() { case 1: } }", "import a.b", "class A { int if; }",
    "class A { void f() { (a + b) c; } }", "record P(int x) { int z; }",
    "record P(int x) { { } }", "record P(int x) { final int z = 1; }", "interface I { f() {} }", "interface I { int x = 1, y; }",
    "interface I { static { } }", "interface I { int y; }", "interface I { <T> I() {} }", "class$A {}", "classé {}",
    "class A extends$B {}", "class A { int x = 1é; }", "class A { intα x; }; importé a;", "class A { /* }", "class A { int x = 08; }", "class A { int x = 0x; }", "class A { void f() { if (a) int b; } }",
    "class A { boolean x = a instanceof B < c; }", "class A { boolean x = a instanceof B ++ c; }", "class A { int x = switch (a) { } ++ b; }", "non-sealedclass A { }", "class A { boolean x = a instanceof final B; }", "class A { void f() { while (a) int b; } }", "class A { void f() { a: int b; } }", "class A { void f() { static class D { } } }", "class A permits B { }", "sealed record A() { }",
    "sealed class A permits B<C> { }", "class A { sealed int x; }", "class A { record x; }", "class A { record() { } }", "@interface A { int x() default; }",
    "class A { int x = 2147483648; }", "class A { int x = 047777777777; }", "class A { float x = 1e39f; }", "class A { long x = 02777777777777777777777L; }", "class A { long x = 9223372036854775808L; }", "class A { int x = 1_; }", "class A { int x = 0x_1; }",
    'class A { String s = "\\u0022"; }', 'class A { String s = "\\u000a"; }', 'class A { String s = """a"""; }', 'class A { String s = """\na""""; }',
    "class A { int f(int... x, int y) {} }", "class A { int x = switch (a) { default -> 1; }.f(); }", "class A { int x = switch (a) { case 1 -> 2 }; }",
    "class A { void f() { switch (a) { case 1 -> x; } } }", "class A { void f() { yield (); } }", "class A { void f() { a.new B.C(); } }",
    "class A { F f = (Map<B>>) c; }", "class A { void f() { B::c; } }", "class A { void f() { if (a) if (b) ; else ; else ; else ; } }",
    "import a;", "import static a;", "import a.b.c.*; import static d;", "sealed native class A permits B { }",
    "non-sealed default class A { }", "class A { void f()[] { } }", "class A { A()[] { } }", "interface A { void f(int x)[]; }",
    "class A { F f = a.new B<?>(); }", "class A { F f = a.<?>b(); }", "class A { F f = g(a::<?>b); }", "class A { F f = new B<>[1]; }",
    "class A { int f() { yield int.class; } }", "class A { F f = switch (a) { default: yield void.class; }; }", "class A { boolean x = a instanceof B[] < c; }", "class A { F f = (var a, int b) -> c; }",
    "class A { F f = (int... a, int b) -> c; }", "class A { double x = 0x.p1; }", "class A { double x = 0x1p3e5; }",
    "class A { int x = new int[1][][0]; }", "class A { F f = new B<?>[1][][a[].class]; }", "class A { boolean x = a instanceof B<C>==d; }",
    "class A { boolean x = a instanceof B<B<C>>==d; }", "class A { int x = a instanceof B<C>>>>d; }", "class A { int x = a instanceof B<B<C>>>>d; }",
    "class A { int x = a instanceof B<B<C>>>>>d; }", "class A { void f(int b, A this) { } }", "class A { void f(A... this) { } }",
    "class A { void f(A this[]) { } }", "class A { void f(B C.D) { } }", "class A { F f = (A this) -> 1; }", "record R(R this) { }",
    "class A { void f(A this,) { } }", "class A { void f(this) { } }",
    "class A { int f() { yield (new int[]{1, 2}).length; } }", "class A { int f() { yield (A<B, C>) d; } }", "class A { int f() { yield (A<B<C>, D>) e -> f; } }",
    "class A { int f() { yield (new A<B<C>, D>()); } }", "class A { int f() { yield (a -> { int b, c; }); } }", "class A { int f() { yield (a[new int[]{1, 2}.a]); } }",
    "class A { int f() { yield (switch (a) { case 1, 2 -> 3; }); } }", "class A { int f() { yield (new A() { int b, c; }); } }", "class A { int f() { yield (this.<A, B>f()); } }",
)  # fmt: skip

LEFT_OUT = (
    "class A { F x = a + b::c; }", "class A { F x = a ? b::c : d; }", "class A { F x = a -> b::c; }", "class A { F x = List<B>::new; }",
    "class A { F f = (A<B<C<D>>>) e; }", "class A { F f = (A<B> & C) d; }", "class A { void f() { record B() { } } }", "class A { @B(1 * 2) int x; }", "class A { int var; }",
    "@interface I { int f(I this); }", "class A { F x = record -> 1; }", "class A { int x = -2147483648; }", "class A { int @B [] x; }",
    "module a { }", "class A { void f() { if (a) if (b) ; else ; else ; } }", "class A { void f() { a > b = c; } }", "/* \\u0041 */",
    "class A { F x = (b::c); }", "class A { F f() { throw b::c; } }", "class A { F x = B[]::clone; }", "class A { void f() { switch (a) { case (1): } } }", "class A { void f() { switch (a) { case (int) 1: } } }",
    "class A { void f() { switch (a) { case b < c: } } }", "class A { F x = new <B>C(); }", "class A { F f = (@B int a) -> 1; }", "class A { F f = (B a[]) -> 1; }",
    "class A { int x = a instanceof B<B<B<C>>>>>d; }",
    "class A { int f() { yield (new int[]{1}); } }", "class A { int f() { yield (a -> { }); } }", "class A { int f() { yield (new A<B>()); } }", "class A { int f() { yield (switch (a) { default -> 1; }); } }",
)  # fmt: skip
"""What the comment of the grammar says is left out, by example."""

MISNAMED = ("enum A { B; C() { } }", "enum A { B; f(); }")
"""Constructors with another name than their enum, which the grammar takes and javac's parser refuses."""

READ = (
    "import a.b; import static a.*; import a.b.c.*;", "sealed static native class A permits B { } non-sealed abstract default class C { }", "class A { int f()[] { } <T> A() { } void record() { } }",
    "class A { F f = a.new B<C<?>>(); F g = a.<C<?>>b(), h = new B<?>(), i = new B<?>[1]; }", "class A { F f = switch (a) { default: yield a[].class; }; F g = switch (a) { default: yield (B) int.class; }; }",
    "class A { boolean x = a instanceof B[] > c, y = a instanceof B[] d < e, z = a instanceof B<C>[] < d, w = a instanceof B instanceof C; }",
    "class A { F f = (final int a, B<C>... b) -> c, g = (var a, final var b) -> c, h = (final A a) -> a; }", "class A { F f = g(super::h, B.super::h, super::<C>h); }",
    "class A { int x = new int[1][0][].a[0] + new int[][]{}[0], y = a instanceof B<C>>>d ? 1 : a instanceof B<C> >>> d, z = a instanceof B<B<C>>>d; }",
    "class A { boolean x = a instanceof B<C>>=d, y = a instanceof B<C> == d, z = a instanceof B<B<C>> == d, w = a instanceof B<C>!=d; }",
    "class A { void f(@B final A[] this, int... b) { } A(B B.this) { } void g(B<D> A.C.this); } interface I { void f(I this); } record R() { R(R this) { } }",
    "class A { int f() { yield (A<B<C>[]>) (A<B, C>) d -> new int[]{1, 2}; } }", "class A { int f() { yield (A<B, C> a, int b) -> c; } }", "class A { int f() { yield (f(a, b)[c] ? (A<B, C>) d : new A<>(a, b).c < e); } }",
    "class A { int f() { yield (a -> (b, c) -> d instanceof int[] && e instanceof A f); } }", "class A { int f() { yield (a) + new int[]{1, 2}[0]; } }", "class A { int f() { yield (new int[1][2][a]).b = c; } }", "class A { int f() { yield -(A<B, C>) d; } }",
    "class A { double x = 0x1.8p3 + 0x1p-2f + 0x.8P1d + 0x1_1.p1; }",
    "class A { float x = 1.5e-5f + 1e30F + .5e+2f - 1.e37f; int y = 037777777777 & 0_1_7777777777; long z = 01777777777777777777777L; }",
)  # fmt: skip

CASTS = (
    "(a) ++b", "(a.B) --c", "(a) (b) ++c", "-(a) --b", "(int) (a) --b", "(a)(b)(c)++d", "(a)(b)+ ++c", "(int) ++b", "(a[]) ++b",
    "(List<?>) ++b", "(a) -(int) ++b", "(a) (int) ++b", "(a) ++", "((a)) ++b", "(a) (b) !c", "(a) - -b", "(a) ~++b",
    "(int[]) (a) -++b", "(a++) + b", "(a) b++", "(a) (b)", "(a) -b", "(int) -b", "(a) this", "(a.b) new A()", "(a) (b)++",
    "++(a) b", "(a<b>) c", "(a) -> b", "(a) -- ", "(a) b ++ + c",
)  # fmt: skip
"""Casts, and what begins like them: what follows a name in parentheses decides."""


@pytest.fixture(scope="module")
def parses() -> Iterator[Callable[[str], bool]]:
    """javac's parser in one process."""
    if not shutil.which("javac") or not shutil.which("java"):
        pytest.skip("there is no javac here")
    source = Path(__file__).parents[1] / "oracles" / "JavaSyntax.java"
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]  # its optimizing compiler took most of the time
    with subprocess.Popen(["java", *quick, str(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        writing, reading = process.stdin, process.stdout

        def judge(text: str) -> bool:
            writing.write(base64.b64encode(text.encode()).decode() + "\n")
            writing.flush()
            answer = reading.readline().strip()
            assert answer in ("0", "1")
            return answer == "1"

        yield judge
        writing.close()


@cache
def machine():
    return library_machine("java")


def accepts(text: str) -> bool:
    return machine().accepts(text.encode())


def changed(rng: random.Random, text: str) -> str:
    """A program with one lexeme removed, doubled, or swapped with the next one."""
    parts = re.findall(r"[A-Za-z_]\w*|\d+|\s+|.", text, re.DOTALL)
    k = rng.randrange(len(parts) - 1)
    parts[k : k + 2] = [[parts[k + 1]], [parts[k], parts[k], parts[k + 1]], [parts[k + 1], parts[k]]][rng.randrange(3)]
    return "".join(parts)


def check_changed(programs: list[str], count: int, seed: int, parses: Callable[[str], bool], most_missed: float) -> None:
    rng, both, missed = random.Random(seed), {True: 0, False: 0}, 0
    for _ in range(count):
        text = changed(rng, rng.choice(programs))
        taken, right = accepts(text), parses(text)
        assert right or not taken, text
        both[right] += 1
        missed += right and not taken
    assert min(both.values()) > count / 10
    assert missed <= most_missed * both[True]


@pytest.mark.parametrize("program", [PROGRAM, MORE])
def test_a_program_is_read_and_changed_ones_are_refused_where_javac_refuses_them(program, exhaustive, parses):
    assert parses(program)
    assert accepts(program)
    check_changed([program], 10_000 if exhaustive else 200, 1, parses, 0.06)


def test_keywords_are_no_names(exhaustive, parses):
    draw, words = random.Random(3), keywords_of(library.grammar_text("java"))
    for _ in range(10_000 if exhaustive else 250):
        text = with_keyword(draw, PROGRAM, words)
        assert parses(text) or not accepts(text), text


def test_the_grammar_is_deterministic():
    assert machine().deterministic


def test_names_that_begin_with_keywords(parses):
    text = "class ifé extends $A { int varα, if$, nullñ = 日本.class$, Ж; void int$(int_ é) { returnλ(); } }"
    assert parses(text)
    assert accepts(text)


def test_members_of_records_and_interfaces(parses):
    text = """record P(int x) { private static final int z = 1, w; P(int y, int q) { this(y); } static { } class A { int x; { } } }
interface I { int x = 1, y[] = {}; void f(); private void g() { } static <T> T h() { return null; } class C { C() { } } enum E { A; int x; } }
"""
    assert parses(text)
    assert accepts(text)


def test_what_is_no_java_is_refused(parses):
    assert [text for text in REFUSED if parses(text)] == []
    assert [text for text in REFUSED if accepts(text)] == []


def test_what_is_java_is_read(parses):
    assert [text for text in READ if not parses(text)] == []
    assert [text for text in READ if not accepts(text)] == []


def test_names_of_constructors_are_not_compared(parses):
    assert not any(map(parses, MISNAMED))
    assert all(map(accepts, MISNAMED))


def test_what_is_left_out(parses):
    assert [text for text in LEFT_OUT if not parses(text)] == []
    assert [text for text in LEFT_OUT if accepts(text)] == []


def test_the_shared_programs(data_dir, exhaustive, parses):
    if not (data_dir / "programs").is_dir():
        pytest.skip("the shared programs are not here")
    rows = [json.loads(line)["text"] for line in (data_dir / "programs" / "java.jsonl").read_text().splitlines()]
    texts = [text for text in (rows if exhaustive else rows[::5]) if parses(text)]
    taken = [text for text in texts if accepts(text)]
    assert len(taken) >= 0.99 * len(texts) > 100
    check_changed(taken, 10_000 if exhaustive else 150, 2, parses, 0.03)


def test_casts_are_javacs(parses):
    for text in CASTS:
        program = f"class A {{ int x = {text}; }}"
        assert accepts(program) == parses(program), text
