"""Grammars that a user might write, right ones and wrong ones, in both syntaxes.

A right one comes with texts that it must accept and refuse; a wrong one with its error's class and with words that must appear
in the message, enough for its author to mend it. Some need several stacks.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from fsa_compile.errors import (
    GrammarConflictError,
    GrammarError,
    GrammarSyntaxError,
    LimitError,
    UnsatisfiableError,
    UnsupportedGrammarError,
)


class Token(str):
    """A token by its name, in a sample: no text."""


Sample: TypeAlias = "str | tuple[str, ...]"
"""A text, or pieces of text and tokens."""


class GrammarCase(NamedTuple):
    """One grammar.

    Attributes:
      name: what it is.
      syntax: "lark" or "gbnf".
      text: the grammar.
      accepted, rejected: samples; the language is larger.
      stacks: enough stacks for the samples; more than 1 where one stack is a conflict.
      error: class of the error that it must give, or None.
      words: what the error's message must hold.
      specials: names of the special tokens that the vocabulary must have.
      warning: words of the warning that it must give, or "".
    """

    name: str
    syntax: str
    text: str
    accepted: tuple[Sample, ...] = ()
    rejected: tuple[Sample, ...] = ()
    stacks: int = 1
    error: type[Exception] | None = None
    words: tuple[str, ...] = ()
    specials: tuple[str, ...] = ()
    warning: str = ""


RIGHT: tuple[GrammarCase, ...] = (
    GrammarCase(
        "JSON, as in Lark's tutorial",
        "lark",
        r"""
        ?value: dict | list | string
              | SIGNED_NUMBER -> number
              | "true" -> true | "false" -> false | "null" -> null
        list : "[" [value ("," value)*] "]"
        dict : "{" [pair ("," pair)*] "}"
        pair : string ":" value
        string : ESCAPED_STRING
        start: value
        %import common.ESCAPED_STRING
        %import common.SIGNED_NUMBER
        %import common.WS
        %ignore WS
        """,
        ('{"a": [1, -2.5e3, null]}', "[]", " { } ", '"\\"x"', '[[[["a"]], {"b":{}}]]', "true\n", "1"),
        ("", "{", "[1,]", "{a:1}", '"a"b"', "truefalse", "nul", "[1 2]", "1 1", '"a\nb"'),
    ),
    GrammarCase(
        "arithmetic, left recursive, with white space",
        "lark",
        r"""
        start: start ("+" | "-") product | product
        product: product ("*" | "/") atom | atom
        atom: NUMBER | "-" atom | NAME | "(" start ")"
        %import common.CNAME -> NAME
        %import common.NUMBER
        %import common.WS_INLINE
        %ignore WS_INLINE
        """,
        ("1", "1+2*3", "( 1 + x1 ) * -2", "--1", "((a))", "1e5/y", "1.5-.5", "a-b-c", " 1 "),
        ("", "1+", "(1", "1)", "1 2", "a b", "1**2", "()", "+1", "1\n"),
    ),
    GrammarCase(
        "arithmetic, right recursive, powers",
        "lark",
        'start: sum\nsum: pow "+" sum | pow\npow: base "^" pow | base\nbase: /[0-9]/ | "(" sum ")"',
        ("1", "1+2^3^4+5", "(1+2)^3", "((1))"),
        ("1+", "^1", "1^", "12", "(1", ""),
    ),
    GrammarCase(
        "modules, one of which imports the other under another name",
        "lark",
        r"""
        start: "{" [pairs{entry}] "}"
        entry: KEY "=" value
        value: sum | KEY
        KEY.1: /[a-z]+/
        %import .parts.pairs
        %import .parts.sums -> sum
        %ignore " "
        %module parts
        pairs{x}: x (";" x)*
        sums: term ("+" term)*
        term: NUMBER | "(" sums ")"
        %import .digits.INT -> NUMBER
        %ignore "_"
        %module digits
        INT: /0|[1-9][0-9]*/
        """,
        ("{}", "{a=1}", "{ab = (1+ 20) ;c=d}", "{a=((0))+1;b=0}"),
        ("", "{a}", "{a=01}", "{a=1_0}", "{a=(1+b)}", "{a=1;}", "{=1}"),
    ),
    GrammarCase(
        "lists from templates",
        "lark",
        r"""
        start: bracketed{number} ";" bracketed{bracketed{"x"}}
        bracketed{item}: "[" separated{item, ","} "]" | "[" "]"
        separated{item, mark}: item | separated{item, mark} mark item
        number: /[0-9]+/
        """,
        ("[];[]", "[1,22,3];[[x,x],[]]", "[0];[[x]]"),
        ("[1,];[]", "[x];[]", "[];[x]", "[];[[1]]", "[1]"),
    ),
    GrammarCase(
        "nested lists, nullable inside",
        "lark",
        'start: list\nlist: "(" item* ")"\nitem: list | atom?\natom: /[ab]/',
        ("()", "(a(b)())", "((()))", "(abab)"),
        ("", "(", "())", "a", "(c)"),
    ),
    GrammarCase(
        "unit cycle",
        "lark",
        'start: a\na: b | "x"\nb: a | "y" | "(" a ")"',
        ("x", "y", "(x)", "((y))"),
        ("", "xy", "(", "()", "(x"),
        warning="is a circle",
    ),
    GrammarCase(
        "nullable rules in a row, ambiguous trees",
        "lark",
        'start: a a b\na: b? b?\nb: "x" | ',
        ("", "x", "xxxxx"),
        ("y", "xxxxxx"),
    ),
    GrammarCase(
        "hidden left recursion through a nullable rule",
        "lark",
        'start: sign start "+" | DIGIT\nsign:\nDIGIT: "0".."9"',
        ("1", "1+", "1++"),
        ("", "+", "-1+", "1-"),
    ),
    GrammarCase(
        "matching parentheses, ambiguous",
        "lark",
        'start: start start | "(" start ")" | "[" start "]" |',
        ("", "()", "()[]", "([()][])"),
        ("(", ")", "(]", "([)]"),
        warning="is a circle",
    ),
    GrammarCase(
        "keywords and names",
        "lark",
        r"""
        start: statement+
        statement: "if" NAME "then" statement "end" | NAME "=" NAME ";"
        NAME: /[a-z_]+/
        %ignore /[ \n]+/
        """,
        ("a=b;", "if x then a=b; end", "iffy=thenx;", "if if_ then\n end_ = a ; end"),
        ("if=a;", "ifx then a=b; end", "if x thena=b;end", "a=if;", "if x then a=b;", ""),
    ),
    GrammarCase(
        "calls with comments and strings",
        "lark",
        r"""
        start: call*
        call: NAME "(" [argument ("," argument)*] ")"
        argument: [NAME "="] (call | STRING | INT | NAME)
        NAME: ("a".."z" | "_")+
        STRING: /"[^"\n]*"/ | /(\'\'\'(.|\n)*?\'\'\'|'.*?')/
        COMMENT: "/*" /(.|\n)*?/ "*/"
        %import common.INT
        %import common.WS
        %ignore WS | COMMENT
        """,
        ("", "f()", 'f(a, b="x")', "f(g(1),'y') /* c */ g()", "f(/**/)", "f(a=b)", "f('''a'\n''')"),
        ("f", "f(", "f(a b)", "f('x'y')", "f('''a'''')", "f(,)", "f() /* c", "f(1=2)", 'f("x\ny")'),
    ),
    GrammarCase(
        "strings of Python: lazy, with conditions on what follows and precedes",
        "lark",
        r"""
        start: (STRING | NAME | LIST)+
        STRING: /([ubf]?r?|r[ubf])("(?!"").*?(?<!\\)(\\\\)*?"|'(?!'').*?(?<!\\)(\\\\)*?')/i
        LIST: /<.*?>(?:;*|,x)+/
        NAME: /[a-z]+/
        """,
        ('""', "''", 'rb"a"', '"\\""', '"\\\\"x', "u'a\\'b'", 'x"y"', "''\"\"", "<>;;x", "<a>"),
        ('"""', "'''", '"\\"', '"\\\\""', '"a\nb"', "<a", "<>,x", '"a" "b"', ""),
    ),
    GrammarCase(
        "lines of settings, line ends mean something",
        "lark",
        r"""
        start: (section | NEWLINE)*
        section: "[" NAME "]" NEWLINE setting*
        setting: NAME "=" VALUE? NEWLINE
        NAME: /[a-z]+/
        VALUE.-1: /[0-9]+( [0-9]+)*/
        %import common.NEWLINE
        """,
        ("", "\n", "[a]\nb=1\nc=\n\n[d]\n", "[a]\r\nb=1 2\r\n"),
        ("[a]", "b=1\n", "[a]\nb\n", "[a] \n", "[a]\nb=1"),
    ),
    GrammarCase(
        "tags of a fixed set",
        "lark",
        'start: node\nnode: "<b>" content "</b>" | "<i>" content "</i>" | "<br/>"\ncontent: (node | TEXT)*\nTEXT: /[^<>&]+/',
        ("<b></b>", "<b>x<i>y</i><br/></b>", "<br/>"),
        ("<b>", "<b></i>", "<b><i></b></i>", "x", "<u></u>"),
    ),
    GrammarCase(
        "case does not matter",
        "lark",
        r"""
        start: "SELECT"i columns "FROM"i NAME ["WHERE"i NAME "=" value]
        columns: "*" | NAME ("," NAME)*
        value: INT | NAME
        NAME: /[a-z_][a-z0-9_]*/i
        %import common (INT, WS)
        %ignore WS
        """,
        ("select * from t", "SELECT a,b FROM t Where c = 10", "select fromage from selects"),
        ("select from t", "select*fromt", "select a from t where", "select a b from t"),
    ),
    GrammarCase(
        "thinking block and tool call",
        "lark",
        r"""
        start: <think> %until("</think>") answer
        answer: "done" | <tool> "{" ESCAPED_STRING "}" <[301]>
        %import common.ESCAPED_STRING
        """,
        (
            (Token("<think>"), "so </thin </think>done"),
            (Token("<think>"), "</think>", Token("<tool>"), '{"a"}', Token("<end>")),
        ),
        (
            "<think></think>done",
            (Token("<think>"), "done"),
            (Token("<think>"), "</think>", Token("<tool>"), '{"a"}'),
            (Token("<think>"), "</think> </think>done"),
        ),
        specials=("<think>", "<tool>", "<end>"),
    ),
    GrammarCase(
        "shared beginnings, told apart at the end",
        "lark",
        'start: a "x" | b "y"\na: "(" a ")" | "c"\nb: "(" b ")" | "c"',
        ("cx", "cy", "((c))x", "(c)y"),
        ("c", "(cx", "(c", "((c)x"),
    ),
    GrammarCase(
        "counted items, counted words",
        "lark",
        'start: line~2..3\nline: WORD~1..2 ("," WORD)~0..2 ";"\nWORD: /[a-z]/~2',
        ("ab;cd;", "abcd,ef,gh;ij;kl;"),
        ("ab;", "ab;cd;ef;gh;", "abc;de;", "ab,cd,ef,gh;ij;", ";;"),
    ),
    GrammarCase(
        "unreachable rule",
        "lark",
        'start: "a" | "b"\nleft_over: "c" left_over | "d"',
        ("a", "b"),
        ("", "c", "d"),
        warning="left_over",
    ),
    GrammarCase(
        "regex with lookahead and a negated word",
        "lark",
        r"""
        start: NAME ("." NAME)*
        NAME: /(?!(?:end|if)(?![a-z]))[a-z]+/
        """,
        ("a", "ending.ifs", "a.b.c"),
        ("end", "a.if", "a.", ""),
    ),
    GrammarCase(
        "conditions on the text around terminals",
        "lark",
        r"""
        start: range ("," range)* ("," KEY "=" range)*
        range: number (".." number)?
        number: INT | FLOAT | REF
        INT: /[0-9]+(?![.][0-9])/
        FLOAT: /[0-9]+[.][0-9]+/
        REF: /\b[a-z]+(?! *=)/
        KEY.1: /(?<=,)[a-z]+(?= *=)/
        %ignore " "
        """,
        ("1..5", "1.5..7", "a..b,c", "1,a=2.5", "x,y =z..1", "1 ..2"),
        ("1.", "a=1", "1, a=2", "1.5.5", "1,a", "1,a==2")[:4],
    ),
    GrammarCase(
        "a character that must follow, and rules of one line",
        "lark",
        r"""
        start: (_NL | (key ":")? value _NL)*
        key: KEY
        value: WORD | "(" value* ")" | "<" inside
        inside: (WORD | "(" WORD* ")")* ">"
        KEY.1: /[a-z]+(?=:)/
        WORD: /[a-z]+(?![a-z:])/
        _NL: /(\n *)+/
        %ignore " "
        %declare _INDENT _DEDENT
        %one_line inside
        """,
        ("a: b\n", "(a\nb <c d>\n e)\n", "<a (b)>", "a:(b)\nc\n"),
        ("a :b\n", "a:\n", "(a\nb <c\nd>)\n", "(<(a\nb)>)\n", "(a:b)\n"),
    ),
    GrammarCase(
        "JSON in GBNF, as llama.cpp has it",
        "gbnf",
        r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
""",
        ("{}", '{"a": [1, -2.5e3, "\\u00e9"]}', '{ "x":{"y":null} } ', '{"a":\n\t\ttrue}', '{"é":[]}'),
        ("[]", "{", '{"a"}', '{"a":01}', '{"a":1,}', '{"a":  1}', '{"\\x":1}'),
    ),
    GrammarCase(
        "list in GBNF",
        "gbnf",
        'root ::= item+\n\n# Excludes various line break characters\nitem ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"\n',
        ("- a\n", "- a\n- b c \u20ac\n", "- - \n"),
        ("", "a\n", "- \n", "- a", "- a\x85\n", "- a\u2028\n"),
    ),
    GrammarCase(
        "arithmetic in GBNF",
        "gbnf",
        r"""
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
""",
        ("1=1\n", "(a +1)*b_2 = 3\n", "((x))= y \n\n1=2\n"),
        ("1=1", "=1\n", "(1=1\n", "A=1\n", ""),
    ),
    GrammarCase(
        "chess moves in GBNF",
        "gbnf",
        r"""
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
# piece type, optional file/rank, optional capture, dest file & rank
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
# optional file & capture, dest file & rank, optional promotion
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
""",
        ("1. e4 e5\n2. Nf3 Nc6\n", "1. e4 d5\n2. exd5 Qxd5\n3. O-O-O O-O+\n", "1. e4 e5\n10. R1a3 a8=Q#\n"),
        ("1. e4 e5\n", "1. e4\n2. e5 e6\n", "1. e9 e5\n2. a1 a2\n", "1. e4 e5\n2. O-O-O-O a1\n"),
    ),
    GrammarCase(
        "special tokens in GBNF",
        "gbnf",
        'root ::= (<tool> call)* <[301]>\ncall ::= [a-z]+ "(" call? ")"',
        ((Token("<end>"),), (Token("<tool>"), "f(g())", Token("<tool>"), "h()", Token("<end>"))),
        ("f()", (Token("<tool>"), "f()"), (Token("<end>"), "f()"), (Token("<tool>"), Token("<end>"))),
        specials=("<think>", "<tool>", "<end>"),
    ),
    GrammarCase(
        "dangling else",
        "lark",
        'start: s\ns: "if" s ["else" s] | "x"\n%ignore " "',
        ("x", "if x", "if if x else x", "if if x else x else x", "if x else if x"),
        ("", "if", "x else x", "if x else", "if x else x else x"),
        stacks=3,
    ),
    GrammarCase(
        "once or twice as many, known at the end only",
        "lark",
        'start: once | twice\nonce: "a" once "b" | "a" "b"\ntwice: "a" twice "b" "b" | "a" "b" "b"',
        ("ab", "abb", "aabb", "aabbbb", "aaabbb"),
        ("", "a", "aab", "aabbb", "abbb"),
        stacks=2,
    ),
    GrammarCase(
        "palindromes with a middle",
        "gbnf",
        'root ::= "a" root "a" | "b" root "b" | "c"',
        ("c", "aca", "abcba", "bacab"),
        ("", "ab", "acb", "aca a", "abcab"),
    ),
)
"""Grammars that compile."""

WRONG: tuple[GrammarCase, ...] = (
    GrammarCase("rule without a definition", "lark", 'start: vlaue\nvalue: "x"', error=GrammarSyntaxError, words=("'vlaue'", "line 1, column 8", "Did you mean value")),
    GrammarCase("no start rule", "lark", 'json: "x"\nlist: "[" json "]"', error=GrammarSyntaxError, words=("no start rule 'start'", "json, list", "start=")),
    GrammarCase("single quotes", "lark", "start: 'yes' | 'no'", error=GrammarSyntaxError, words=("line 1, column 8", "double quotes")),
    GrammarCase("GBNF read as Lark", "lark", 'start ::= "x"', error=GrammarSyntaxError, words=("GBNF", "syntax=")),
    GrammarCase("definition after a line end", "lark", 'start:\n    "a" "b"\n', error=GrammarSyntaxError, words=("line 2", "begin with |")),
    GrammarCase("group never closed", "lark", 'start: "a" ("b" | "c"\nother: "d"', error=GrammarSyntaxError, words=("never closed", "line 1, column 12")),
    GrammarCase("terminal that uses itself", "lark", 'start: LIST\nLIST: "(" LIST? ")"', error=GrammarSyntaxError, words=("LIST → LIST", "lower case")),
    GrammarCase("terminal that uses a rule", "lark", 'start: PAIR\nPAIR: item "," item\nitem: "x"', error=GrammarSyntaxError, words=("PAIR uses the rule item", "lower case", "upper case")),
    GrammarCase("regular expression with a mistake", "lark", "start: WORD\nWORD: /[a-z+/", error=GrammarSyntaxError, words=("line 2, column 8", "never closed")),
    GrammarCase("back-reference", "lark", r"start: /(['x])a\1/", error=UnsupportedGrammarError, words=("back-reference", "line 1")),
    GrammarCase("different conditions at the begin of alternatives", "lark", "start: /[abc]/ /(?<!a)b|(?<!b)c/", error=UnsupportedGrammarError, words=("behind some texts", "Make terminals of its alternatives")),
    GrammarCase("counts the wrong way round", "lark", 'start: "a"~5..2', error=GrammarSyntaxError, words=("5 exceeds", "2 to 5")),
    GrammarCase("braces for counts", "lark", 'start: word{2,5}\nword: "x"', error=GrammarSyntaxError, words=("~2..5",)),
    GrammarCase("import from a file", "lark", "%import .types.NAME\nstart: NAME", error=UnsupportedGrammarError, words=("there is no module types", "read_grammar")),
    GrammarCase("terminal without a pattern", "lark", "start: INDENT\n%declare INDENT", error=UnsupportedGrammarError, words=("without a pattern", "<name>")),
    GrammarCase("template with an argument too many", "lark", 'start: list{"a", "b"}\nlist{x}: x | list{x} x', error=GrammarSyntaxError, words=("takes 1 argument, not 2", "list{x}")),
    GrammarCase("template without an end", "lark", 'start: t{"a"}\nt{x}: t{pair{x}}\npair{x}: x x', error=LimitError, words=("max_rules", "template")),
    GrammarCase("rule that never ends", "lark", 'start: "a" start', error=UnsatisfiableError, words=("start",)),
    GrammarCase("alternative that never ends", "lark", 'start: "a" | forever\nforever: "b" forever', error=GrammarError, words=("forever has no finite text", "line 2")),
    GrammarCase("palindromes without a middle", "gbnf", 'root ::= "a" root "a" | "b" root "b" |', error=GrammarConflictError, words=("root", "stacks")),
    GrammarCase("optional sign for every plus", "lark", 'start: sign start "+" | "1"\nsign: "-" |', error=GrammarConflictError, words=("line 1", "stacks")),
    GrammarCase("string never closed", "gbnf", 'root ::= "a" b\nb ::= "x', error=GrammarSyntaxError, words=("never closed", "line 2")),
    GrammarCase("escape of regular expressions", "gbnf", r"root ::= [\d]+", error=GrammarSyntaxError, words=(r"unknown escape \d",)),
    GrammarCase("rule without a definition", "gbnf", "root ::= item+", error=GrammarSyntaxError, words=("'item'", "not defined")),
    GrammarCase("second definition", "gbnf", 'root ::= a\na ::= "x"\na ::= "y"', error=GrammarSyntaxError, words=("second time", "line 2", "|")),
    GrammarCase("negated token", "gbnf", "root ::= !<think>*", error=UnsupportedGrammarError, words=("negated token", ".*")),
    GrammarCase("token that is not in the vocabulary", "gbnf", 'root ::= <thonk> "x"', error=UnsupportedGrammarError, words=("<thonk>", "no special token"), specials=("<think>",)),
)  # fmt: skip
"""Grammars that give an error."""
