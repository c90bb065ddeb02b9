r"""Texts for the grammars of the library: (accepted, refused) by the name of the grammar."""

from __future__ import annotations

JSON_ACCEPTED = (
    "0", "-0", "12.50e+10", "1E400", "true", "null", '""', '"é\U0001f600\x7f"', r'"\"\\\/\b\f\n\r\t\u00e9\ud800"', "[]", "{}",
    '{"a":1,"a":[{}]}', "[[[[[]]]]]", '{"a":{"b":[1,2,{"c":null}]},"":false}', '["tab\\tend", -1.5E-3, true]',
)  # fmt: skip
JSON_REFUSED = (
    "", "01", "-", "1.", ".5", "+1", "1e", "0x1", "NaN", "Infinity", "True", "nul", "nulll", "'a'", '"', '"a', '"\t"', '"\\x41"',
    '"\\u12g4"', '"\n"', "[1,]", "[,1]", "[1 2]", "[1,,2]", "{1:2}", '{"a"}', '{"a":}', '{"a":1,}', '{"a" 1}', "{]", "[}", "[[]",
    "[]]", '{"a":1 "b":2}', "1 2", "// c\n1", "[1]//", "\ufeff1", "\xa01", "--1", "truefalse", '"a" "b"', "\x00",
)  # fmt: skip

TEXTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "json": (
        (*JSON_ACCEPTED, " \t\n\r1 \n", '[ 1 ,\t2 ]\n', '{ "a" : [ { } , [ ] ] , "b" : -0.0 }', "[\n  1,\n  [2]\n]"),
        (*JSON_REFUSED, "\x0b1", "[1\f]", '{"a\n":1}'),
    ),
    "json_compact": (
        (*JSON_ACCEPTED, '{"a": 1, "b":[2, 3,4]}', '[1,"  ", 2]'),
        (*JSON_REFUSED, " 1", "1 ", "[ 1]", "[1 ]", "[1,  2]", "[1 ,2]", '{"a" :1}', '{"a":  1}', "[1,\n2]", "{ }", "[1,\t2]"),
    ),
    "json_object": (
        ("{}", "{ }", '{"a":1}', '{\n\t"a" : [ 1 , "x" ] ,\n  "b": {"c": null}\n} ', '{"n": -1234567890123456.5e+300}', '{"\\u0041é": ""}',
         "{\n" + " " * 20 + "}"),
        ("", "[]", "1", " {}", "{  }", "{\n\n}", "{\n" + " " * 21 + "}", '{"a":12345678901234567}', '{"a":1e1000}', '{"\x7f":1}',
         '{"a":1,}', '{"a":01}', "{}  ", '{"a":tru}', "{\r\n}", "{\t}"),
    ),
    "json_tutorial": (
        ("{}", "[1, +2, -.5, 3.]", ' {"a" : "b\\q"} ', '"\\""', '"\\\\"', '["a","b"]', "\f[ ]", "007", "1e+5", '{"k":{"k":[null,true]}}'),
        ("", "{a:1}", '"\n"', "1e", ".", "++1", '"\\"', "[1,]", "truefalse", '"a""b"', "nul"),
    ),
    "arithmetic": (
        ("1", "x", "1+2*3", "-(1 + -x)**2", "f(1, g(x), 2*y)", "a//b % c / 3.25e-2", "f()", "2**-1", "((((1))))", " \t1 - 2 ", "---x",
         "x1", "0.5", "10", "a-b-c", "1e5", "-x**y**-z"),
        ("", "1+", "+", "()", "(1", "1)", "1 2", "2x", "x y", "f(,)", "f(1,)", "1 + * 2", "1. + 2", ".5", "01", "a***b", "a/ /b",
         "f(1)(2)", "(f)(1)", "1(2)", "1_0", "X", "a\n", "1e", "1e+", "x.y", "//x", "3 % % 4"),
    ),
    "python_values": (
        ("1", "-1", "+0x_fF", "0b1_0", "0o17", "1_000.5_0e-1_0", ".5", "1.", "00_0", "3j", "-1.5e3J", "1+2j", "- 1 - .5j", "007.5", "09j",
         "None", "True", "False", '"a"', "'a\"b'", r"'\n\x41\u00e9\U0010ffff\101\0\\\''", "'a\\\nb'", "u'x'", "r'\\d+\\''", 'R"\\"x"', "b'\\xff\\\\u'",
         "rb'\\d'", "Br'\\''", "''''''", "'''a\n'b''c\\''''", '"""x""y"""', 'b"""\n"""', 'rb"""\\""""', "()", "(1,)", "(1, 2)", "(1,2,)", "(1)", "((1,),)", "[]",
         "[1,]", "[1, 'a', None]", "{}", "{1}", "{1, 2,}", "{1: 2}", "{'a': {'b': (1,)}, 2: [],}", "x", "a.b.c", "a . b", "Color.RED", "f()",
         "f(1)", "f(1, x=2)", "f(x=1, y=(2,),)", "datetime.date(2020, 1, 2)", "f(1)(2).g(h=3)", "[f(x=g(y)), -1]", "\t 1 ",
         "[\n  1,\n  2,\n]", "{\n'a'\n:\n1\n}", "f(\n    1,\n\n    x=2\n)", "_", "match", "print('é')", "Nonesuch", "f(none=1)",
         "f(r, b, rb)", "{x: y}", "{-1: +2, 'k': 1j}", "(\n)", "f(\r\n1)"),
        ("", "1 2", "01", "1__0", "1_", "0x", "0b2", "0o8", "1e", "--1", "- x", "1+2", "1j+2", "1+2j+3j", "none.", "None.x", "None()", "True(1)", "if",
         "a.None", "f(if=1)", "f(None=1)", "f(x=1, 2)", "f(,)", "f(1,,2)", "f(*a)", "f(**a)", "f(x for x in y)", "(,)", "[,]", "{,}", "{1:2, 3}", "{1, 2:3}",
         "{1:}", "{:1}", "1, 2", "1,", "(1 2)", "'a", "'a'b'", "'\n'", "'\\'", "r'\\'", "'\\d'", "'\\x4'", "'\\u12'", "'\\U00110000'", "b'é'", "b'\\q'",
         "ur'x'", "rb'x", "'a' 'b'", "f'x'", "'''a''", "''''", "'''a''''", "x[1]", "'a'.b", "1 .real", "(1).real", "a.1", "lambda: 1", "1 if x else y",
         "[1\n", "1\n", "\n1", "# c\n1", "[1 # c\n]", "f\n(1)", "(a\n.b)", "f(x=\n1)", "1\\\n", "é", "x y", "...", "not x", "f(x:=1)", "[*a]", "{**a}", "a,", "-(1)", "(1)+2j",
         "'\x00'", "\f1", "None None", "1.e", "0_", "0xg"),
    ),
    "sql_select": (
        ("SELECT 1", "select * from t", "SELECT a, b AS c FROM t;", "SELECT DISTINCT t.a, u.* FROM t AS x, u", "SELECT count(*), f(DISTINCT a), g() FROM t",
         "SELECT a FROM t WHERE a = 1 AND (b <> 'it''s' OR NOT c >= -2.5e3)", "SELECT a FROM t WHERE (a + 1) * 2 < (SELECT max(b) FROM u)",
         "SELECT a FROM t WHERE a IN (1, 2) AND b NOT IN (SELECT c FROM u) AND c IS NOT NULL AND d NOT BETWEEN 1 AND 2 AND e LIKE 'x%'",
         "SELECT a FROM t LEFT OUTER JOIN u ON t.a = u.b CROSS JOIN v INNER JOIN w ON 1", "SELECT a FROM (SELECT b FROM t) AS x WHERE EXISTS (SELECT 1)",
         "SELECT a = b < c IS NULL, NOT a + NOT - b, + - -1 FROM t WHERE a IN ((1), (2, 3)) AND (a, b) = (1, 2)",
         "SELECT a FROM t WHERE a BETWEEN 1 AND b + 1 OR NOT a NOT BETWEEN 'x' AND 'y' AND a IS NOT b ORDER BY count(*), (a + b) DESC",
         "SELECT a FROM t GROUP BY t.a, length(b), (a % 2) LIMIT 1", "SELECT 1 AND 2, (1)AND(2), 'a'AND'b', a- -1",
         "SELECT a, sum(b) FROM t GROUP BY a, c HAVING sum(b) > 10 ORDER BY a DESC, b ASC LIMIT 10 OFFSET 5",
         "SELECT a FROM t UNION ALL SELECT b FROM u EXCEPT SELECT c FROM v ORDER BY 1", "SELECT -a, - (-b), a - (-b), 'x' || y FROM t\n",
         "SELECT\ta\r\nFROM\tt", "SELECT(1)", "SELECT'a'FROM t", "SELECT selects, fromage FROM t WHERE nota AND(b)", "SELECT a==b, a!=b FROM t", "SELECT NULL", "SELECT ((a)) FROM t"),
        ("", "SELECT", "SELECT FROM t", "SELECT a FROM", "SELECT a b FROM t", "SELECT a, FROM t", "SELECT a FROM t WHERE", "SELECT a FROM t t2 t3", "SELECT select FROM t",
         "SELECT a FROM table", "SELECT a FROM t WHERE a = ", "SELECT a FROM t WHERE a IN 1", "SELECT a FROM t WHERE a BETWEEN 1", "SELECT (a FROM t", "SELECT a) FROM t",
         "SELECT 'a FROM t", "SELECT a--b\n FROM t", "SELECT a FROM t GROUP BY", "SELECT a FROM t HAVING a", "SELECT a FROM t LIMIT", "SELECT a FROM t ORDER a", "SELECT CASE WHEN a THEN b END",
         "SELECT aFROM t", "SELECTa FROM t", "SELECT a FROM t;;", "SELECT a FROM t JOIN u", "SELECT a AND FROM t", "SELECT ſum FROM t", "ſELECT 1", "SELECT 1 UNION", "UPDATE t SET a = 1", "SELECT a NOT FROM t",
         "SELECT a FROM t WHERE NOT", "SELECT '\x00'", "SELECT 1x", "SELECT a FROM t WHERE a IS",
         "SELECT 1AND 2", "SELECT 1 AND2", "SELECT a --1", "SELECT a FROM t WHERE a BETWEEN 1 AND", "SELECT a FROM t WHERE a BETWEEN -1 AND 2", "SELECT a FROM t GROUP BY a + 1", "SELECT a FROM t LIMIT -1",
         "SELECT a FROM t LIMIT 1e", "SELECT a IN b", "SELECT a FROM tWHERE b", "SELECT 1e5e", "SELECT a FROM t WHERE a = 1OR b", "SELECT a NOT b", "SELECT a FROM t ORDER BY a + 1", "SELECT EXISTS (1)", "SELECT f(*, 1)"),
    ),
    "c_functions": (
        ("", "void f() {}", "int main(int argc, char argv) { return 0; }", "void f() { int x = 1, y; x += y * -2; }",
         "void f() { if (a) b(); else if (c) d = 1; else { e(); } }", "void f() { if (a) { if (b) c(); else d(); } elsey = 1; }", "void f() { if (a) x; e = 1; }",
         "void f() { for (i = 0; i < 10; i++) { a[i] = f(i, 'x', \"s\\n\"); } for (;;) ; }", "void f() { while (x >= 0x1F) x--; {} ; }", "int g() { return a ? b : c ? d : e; }",
         "int g() { return (a.b->c[1](2) + 3.5e-1) % !d == 1 && e || f != g; }\nvoid h() {}", "void f() { a = b = c; iffy = whiled; }", "float f(){if(a)return 1;else return 2;}",
         "void f() { ((a)); -a; a++; continue; break; return; }", "void f() { a = ++b - --c + + +d+++e; }", "char f() { int returned; returnx = 1; }"),
        ("int", "void f()", "void f() {", "void f() }", "void f() { x }", "void f() { int; }", "void f() { if a b; }", "void f() { else x; }", "void f() { if (a) int x; }",
         "void f() { if (a) if (b) c; }", "void f() { while (a) while (b) c; }", "void f() { return return; }", "void f() { a + b = c; }", "void f() { int if; }", "void f() { 1 = 2 3; }", "void f() { x = 1e; }", "void f() { x = 0xe+1; }", "void f() { x = 0x; }", "void f() { x = 01; }", "void f() { intx; int 1y; }",
         "void f() { a++b; }", "void f() { 'ab'; }", "void f() { \"a\n\"; }", "void f() { f(,); }", "void f() { a ? b; }", "void f(int) {}", "intf() {}", "void f() { for (;) x; }", "void f() { 1x; }", "void f() { a ++ b; }",
         "void f() { if (a) b; else c; else d; }", "void f() { struct = 1; }", "void f() { /* c */ }"),
    ),
    "c_dangling_else": (
        ("", "a = 1;", "if (a) b = 1;", "if (a) if (b) c = 1; else d = 2;", "if (a) if (b) c = 1; else d = 2; else e = 3;", "if (a) if (b) c = 1; elsa = 2;",
         "if (a) { if (b) c = 1; } else d = 2;", "while (a < b) if (c) d = 1; else while (e) f = (1 + 2) - g;", "{}{}{ a = b; }", "if (a) {} e = 1;", "if(a)if(b)if(c)d=1;else e=2;else f=3;", "if(a)if(b)if(c)if(d)e=1;else f=2;else g=3;elf=4;"),
        ("else a = 1;", "if (a) else b = 1;", "if (a) b = 1; else c = 2; else d = 3;", "if (a) b = 1", "if a b = 1;", "{", "}", "a = ;", "if = 1;", "while (a) ", "a = 1; else b = 2;",
         "if (a) { b = 1; else c = 2; }", "if (a) b = 1; elseif (c) d = 1;", "A = 1;",
         "if (a) b = 1else c = 2;", "a = 1b;", "ifa) b = 1;"),
    ),
    "tags": (
        ("", "text", "<p>a <b>bold <i>both</i></b> z</p>", "<ul><li>1</li> <li><ul></ul></li>\n</ul>", "a<br/>b<br/>", "&lt;&amp;&#65;&#126;", "<a>x</a>", '<a href="x?a=1&amp;b=2">y</a>',
         "é\U0001f600\t\n", "<b></b><b><b><b></b></b></b>", "pbi"),
        ("<p>", "</p>", "<p></b>", "<b><i></b></i>", "<p", "<x></x>", "<ul>a</ul>", "<ul><b></b></ul>", "<li></li>", "a > b", "a & b", "&nbsp;", "&#31;", "&#127;", "<br>", "<br/></br>", "<p ></p>", "<P></P>",
         "\x00", "\ufffe", "<!-- c -->", '<a href="<"></a>', '<a href=x></a>', "<ul><li></ul></li>", "<p><p></p>", "<pp></pp>"),
    ),
    "csv": (
        ("", "a", "a,b\n1,2\n", '"a","b ""c"" d"\r\n1,\n', ",,\n,", '"a\nb",c\r"",x', "\n\n", ' "a" , b', 'a"b,c"', '"é\U0001f600"', "\x00,\ufeff", "(1),'2'\t;3",
         '""""\n"","",""\n'),
        ('"', '"a', '"a"b', '"a" ,b', 'a,"b', '"a""', 'a,b\n"c"d\n', '"\r\n', '"a"\t', '"""', '"a","b"c', 'x\n"y" \n'),
    ),
    "graphql": (
        ("{a}", "query { a b: c, d(x: 1) @skip(if: true) { e } }", 'mutation M($a: Int = 1, $b: [T!]! @x) { m(a: $a, o: {k: "v" l: [1.5e3 -0 null E $b]}) }',
         "fragment F on T { ...G ... on U { x } ... @include(if: $c) { y } ...{z} } {a}", "subscription on { on query: fragment }", "{query{mutation}}query{on}",
         '{a(s: "\\u00e9\\uD83D\\uDE00\\u{1F600}\\"\\/", b: """x " \\""" "" \\ \n""")}', "# c\n{ a # b\r}\n,,", "{a(b:\"\"c:\"\"\"\"\"\"d:[\"a\"\"b\"])}", "query ($x:[[Int]!]){a(x:$x)}",
         "{...query}", "{ ...onx }", "{a(true:true false:[false,null])}", "{a(s:\"\x7f\t\")}", "query @a @b(c:{d:[]}){e}", "\ufeff{a}"),
        ("", "{", "{}", "query", "query {}", "{a(}", "{a()}", "{...on}", "{... on}", "fragment on on T {a}", "fragment F {a}", "{a(x:01)}", "{a(x:1.)}", "{a(x:.5)}", "{a(x:1a)}", "{a(x:1.5.2)}", "{a:}", "{a(x 1)}",
         "query($a){b}", "query(a:Int){b}", "query($a:Int=$b){c}", "query($a:Int!!){c}", "{a(s:'x')}", '{a(s:"\n")}', '{a(s:"\\x")}', '{a(s:"\\uD800")}', '{a(s:"\\u{110000}")}', '{a(s:"\\u{}")}', "{a(s:\"\"\"x\")}", '{a(s:[""""])}', '{a(s:["""""x"])}',
         "{a}}", "{a{}}", "type T {a: Int}", "{a-b}", "{é}", "{a @}", "{a @b()}", "{a(x:[1)}", "{a(x:{y})}", "queryA{b}}", "querya{b}", "{..a}", "{....a}", "{a(x:$)}", "{a(x:-)}", "{a(x:+1)}"),
    ),
    "toml": (
        ("", "\n", "# c\n\n  # d", 'title = "TOML"\n[owner]\nname.first = \'Tom\'\n', "a=1", "a.b . \"c d\".'e' = [ 1, 2 , ]", "[a]\n[a.b]\r\n[[c . d]] # e\nf=1\n",
         "x = 0xdead_BEEF\ny = 0o17\nz = 0b1_0\nw = +1_000\nv = -0\n", "f = [3.14, -1e5, +6.02E+23, 1_0.0_1, inf, -nan, 0e0]", "a = true\nb=false",
         "d = [1979-05-27, 1979-05-27T07:32:00Z, 1979-05-27 07:32:00.999-08:00, 07:32:00, 2024-02-29, 2000-02-29t00:00:00]",
         's = """\na\\\n  b "" c\\""" d"""', 's = """"a"""""', "s = \'\'\'\n\'\'a\'\'\'\'\'", "p = { x = 1, y.z = [ { }, {a=\"b\"} ] }", 'u = "\\u00e9\\U0001F600\\t\\\\"',
         "a = [\n  1, # one\n\n  [2,\n3]\n]\n", "1 = 2\n-_ = 3\n1979-05-27 = 4\ntrue = 5\ninf = 6", '"" = 0', "a = \"\"\nb = \'\'\nc = \"\"\"\"\"\"", "[ a ]\t\nb = 1 ", "a = 1\r\nb = 2"),
        ("a", "a =", "= 1", "a = b", "a = 01", "a = 1__0", "a = _1", "a = 1.", "a = .5", "a = 1e", "a = 0x", "a = 0XF", "a = +0x1", "a = True", "a = 1 b = 2", "[a", "[a]]", "[]", "[a] b=1", "[ [a]]",
         "a = 2023-02-29", "a = 1900-02-29", "a = 0000-01-01", "a = 2024-13-01", "a = 2024-04-31", "a = 24:00:00", "a = 12:30", 'a = "\n"', 'a = "\\x41"', 'a = "\\uD800"', 'a = "\\U00110000"',
         "a = \'\n\'", "a = \"\"\"x", "a = \"\"\"x\"\"\"\"\"\"", "a = [1 2]", "a = [,]", "a = [1,,2]", "a = {b=1,}", "a = {b=1\n}", "a = {,}", "a. = 1", "a..b = 1", "a = 1 # \x00", "a = \"\x7f\"", "\ra = 1", "é = 1", "a b = 1", "\ufeffa = 1"),
    ),
}  # fmt: skip
