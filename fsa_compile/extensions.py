"""Extension groups: languages that patterns are no good at, for use inside patterns and beside them.

In a pattern a group `(?P<NAME>)` stands for a whole language, and what follows the name is its argument, texts or patterns
between bars, escaped as in any pattern:

    (?P<QUOTED_TEXT>)                               a quoted string on one line, with backslash escapes
    (?P<UNQUOTED_TEXT>)                             a YAML plain scalar on one line
    (?P<TEXT_UNTIL>END|\\n\\n)                        text up to and including the first stop phrase
    (?P<SUBSTRING_OF>to be or not to be)            a substring of the text, the empty one included
    (?P<DELIMITED_LIST>[a-z]+|, )                   one element or more; the part after the bar stands between them
    (?P<DELIMITED_SUBSEQUENCE_OF>red|green|blue|, ) some of the elements in their order; the last part stands between them
    (?P<TEXT_TOKEN>)                                any one token that writes text
    (?P<PARAGRAPH_TOKEN>)                           any one token that writes text without line breaks
    (?P<IMAGE><image>)                              exactly one of the special tokens named

The functions of this module make the same languages, with options. Any language gets a name of your own by
`regex(pattern, extensions={"CITY": substring_of(text)})`, written `(?P<CITY>)` in the pattern; a function of the texts between
the bars may stand in place of a language. Flags such as `(?i)` do not reach into a group's language, but into pattern arguments.

A group means one member of its language and nothing about its surroundings: a text matches when it can be cut so that every
part matches its own piece, and tokens may cross the cuts. Only the last three are about tokens: a cut beside them is a border
of tokens too. They cannot be spelt in bytes, and TEXT_TOKEN and PARAGRAPH_TOKEN stand neither in `&` nor in `-` and `~`.
Anchors and lookaround can stand beside QUOTED_TEXT, UNQUOTED_TEXT, DELIMITED_LIST and named patterns, which are read as if
written out, but not beside the other groups.
"""

from fsa_compile.languages.group_syntax import EXTENSION_NAMES
from fsa_compile.languages.groups import (
    delimited_list,
    delimited_subsequence_of,
    image,
    paragraph_token,
    quoted_text,
    special_token,
    substring_of,
    text_token,
    text_until,
    unquoted_text,
)

__all__ = [
    "EXTENSION_NAMES",
    "delimited_list",
    "delimited_subsequence_of",
    "image",
    "paragraph_token",
    "quoted_text",
    "special_token",
    "substring_of",
    "text_token",
    "text_until",
    "unquoted_text",
]
