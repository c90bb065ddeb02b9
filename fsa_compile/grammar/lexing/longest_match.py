r"""Longest-match mode: which lexeme a text is, settled once per grammar, so that a parser's context never has to choose.

What holds in the lexical mode "longest":

* Where terminals T may stand (given everything before), those in T and the ignored ones begin together. The lexeme goes on as
  long as one of them can. Where a longer match has begun and fails, the lexeme ends where it last matched: where `1` and `1.5`
  are numbers and `.` is a terminal, `1.foo` is read. The lexer goes back over `MOST_GENERATIONS` lexemes at most, and only where
  the next lexeme belongs to the same rule's automaton and is not called (`frame_subsets`). A grammar that needs more is refused
  (`narrowing`). The beginning of a reserved word is no lexeme: `if` is not read as `i` and `f`.
* Where two terminals that begin together match the same text, one of them is it: that of higher priority, then a plain string
  before a pattern, then the wider (by the longest text it can match), then that with the longer regular expression (as Lark
  writes it), then the first name in alphabetical order, names before none. These are Lark's rules, but that Lark lets a terminal
  that precedes another by these rules also win with a shorter match.
* What a plain string or a keyword (finitely many texts, all of two or more word characters, the first no digit) wins from a
  terminal with texts of any length is reserved: the loser loses the text everywhere, also where the keyword cannot stand. "Begin
  together" is then decided by what stands before: both follow the same terminal, or both begin the text. Lark's contextual lexer
  may accept such a word as a name where the keyword is not possible, or not: its contexts are unions of those of several places.
  None of its contexts is wider than "follows the same terminal".
* What else a terminal wins, it wins where it may stand, and nowhere else: after a `#` that only a colour may follow, `fff` is
  a colour, though it would be a name where names may stand too; in `2024-01-05` the month takes nothing from the day.
* A keyword is not glued to what follows: it may not end before a word character with which some unbounded terminal that begins
  with the same text could go on. `SELECTa` is no SELECT where names exist, even where no name may stand. Word characters are
  `\w`, and all that the terminal reads if in ASCII these are `\w` and $ only. Beyond ASCII this holds where the first byte of the
  character tells it from all others that may follow.
* A condition in a terminal that sees what follows (`/[0-9]+(?![A-Za-z_])/`) forbids it to end before what the condition excludes.
  Then the next terminal that matches the same text is taken, or else a shorter match; where more than the next symbol decides,
  both are followed (`text_ahead`). One that sees what precedes (`/\bif/`) forbids it to begin.
* In the mode "lark" the three rules before the last do not hold: no text is reserved, and no word kept from what follows. Instead
  Lark's lexer is followed: it tries terminals one after another (`lark_order`) and takes the first that matches, with the
  match that its pattern prefers. So where one has matched, those behind it are not read on (`set_precedence`).
* An ignored text may stand before the first, between any two, and after the last lexeme.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from fsa_compile.arrays.bit_sets import disjoint, members, union
from fsa_compile.automata.symbol_dfa import SymbolDfa
from fsa_compile.errors import UnsupportedGrammarError
from fsa_compile.grammar.frame_actions import first_symbols
from fsa_compile.grammar.grammar_tree import Grammar
from fsa_compile.grammar.lexing.follow_sets import contexts_of, following, places_of
from fsa_compile.grammar.lexing.forbidden_ends import guard_ends, settle_conditions
from fsa_compile.grammar.lexing.lark_order import rank_in_lark, set_precedence
from fsa_compile.grammar.lexing.terminal_automata import Automaton, difference, read_beside, share_text, widest
from fsa_compile.grammar.lexing.terminals import Lexicon, Terminal
from fsa_compile.grammar.lexing.whole_characters import Characters
from fsa_compile.limits import Deadline

_LONG = 4
"""Lexemes of more states than this are called, and so shared by the places where they may stand."""
_MOST_COMPARED = 2_000
"""Most sets of states that are looked at for places where a lexer would go back."""


def settle(
    lexicon: Lexicon, frames: list[SymbolDfa], ignore: list[int], in_brackets: list[int], grammar: Grammar, deadline: Deadline
) -> None:
    """Takes texts from the terminals that lose them, and sets the guards of keywords, in place.

    Args:
      lexicon: closed terminals.
      frames: automata of the network's frames, the first one where texts start.
      ignore: terminals that are ignored.
      in_brackets: terminals that are ignored in brackets only.
      grammar: for errors.

    Raises:
      UnsupportedGrammarError: a terminal matches the empty text.
    """
    for t in lexicon.terminals:
        if t.nullable and t.automaton.arcs[0] and t.key[0] not in ("special", "chunks"):
            what = f"terminal {t.name} matches the empty text"
            fix = 'Make it match something, and optional where it is used: write "+" for "*", and TERMINAL? in rules.'
            raise UnsupportedGrammarError(what, text=grammar.text, start=t.start, end=t.end, fix=fix)
    original = [t.automaton for t in lexicon.terminals]
    contextual = grammar.mode == "lark"
    keyword = [not contextual and lexicon.is_keyword(i) for i in range(len(original))]
    reserving = sum(
        1 << i
        for i, t in enumerate(lexicon.terminals)
        if not contextual and (t.literal or (keyword[i] and lexicon.ends_as_word(i) and t.begin < 0))
    )
    contexts = contexts_of(len(original), frames, ignore)
    if contextual:
        set_precedence(lexicon, original, contexts, ignore, grammar, deadline)
        ranks = sorted(range(len(original)), key=rank_in_lark(lexicon.terminals, ignore))
    else:
        ranks = sorted(range(len(original)), key=lambda i: rank_of(lexicon.terminals[i], i))
    better: dict[int, int] = {}
    ranked = 0
    for place, i in enumerate(ranks):
        lexicon.terminals[i].rank = place
        better[i] = ranked
        ranked |= 1 << i
    rivals = _rivals(original)
    places = places_of(frames, ignore)
    for i, t in enumerate(lexicon.terminals):
        deadline.check("Comparing the grammar's terminals")
        own = union(context for context in contexts if context >> i & 1)
        winners = [j for j in members(own & better[i] & rivals[i]) if share_text(original[i], original[j])]
        free = [j for j in winners if not lexicon.terminals[j].ends and lexicon.terminals[j].begin < 0]
        always = [j for j in free if not any(place >> i & 1 and not place >> j & 1 for place in places)]
        reserved = [j for j in winners if reserving >> j & 1] if widest(original[i]) == float("inf") else []
        if winners and not contextual and not difference(original[i], [original[j] for j in {*always, *reserved}])[0].arcs[0]:
            raise _never(lexicon, i, winners, grammar)
        if reserved:
            t.automaton, t.reserved = difference(original[i], [original[j] for j in reserved])
        for j in winners:
            if j not in reserved:
                t.ties = lexicon.terminals[j].ties = True
    _settle_ends(lexicon, original, keyword, frames, [*ignore, *in_brackets])


def _settle_ends(
    lexicon: Lexicon, original: list[Automaton], keyword: list[bool], frames: list[SymbolDfa], ignore: list[int]
) -> None:
    """Sets where lexemes may not end, and where nothing shorter is read any more, in place.

    Args:
      original: the terminals' automata before texts were taken from them.
      keyword: which terminals are keywords.
      ignore: terminals that are ignored, and those that are in brackets.
    """
    end = 1 << lexicon.num_classes
    unbounded = {j: a for j, a in enumerate(original) if any(keyword) and widest(a) == float("inf")}
    glued = functools.cache(lexicon.glued)
    for i, t in enumerate(lexicon.terminals):
        if keyword[i]:
            t.automaton, t.guard = _glued(t.automaton, unbounded, glued)
        guard_ends(t, 2 * end - 1)
    if any(t.ends for t in lexicon.terminals):
        settle_conditions(lexicon.terminals, frames, ignore, end)
    characters = Characters(lexicon.byte_class.tolist())
    for t in lexicon.terminals:
        t.sure = characters.sure(t.automaton, functools.partial(settles, t))


def _never(lexicon: Lexicon, loser: int, winners: list[int], grammar: Grammar) -> UnsupportedGrammarError:
    t = lexicon.terminals[loser]
    names = " or ".join(lexicon.terminals[j].name for j in winners)
    what = f"terminal {t.name} can never match: each of its texts also matches {names}, which wins"
    named = f"{t.name if t.name.isidentifier() else 'NAME'}.{max(lexicon.terminals[j].priority for j in winners) + 1}: ..."
    fix = f"Write {t.name} as a plain string, or give it a priority: {named}"
    fix = f"Give it a name and a priority: {named}" if t.literal else fix
    return UnsupportedGrammarError(what, text=grammar.text, start=t.start, end=t.end, fix=fix)


def rank_of(terminal: Terminal, number: int) -> tuple[int, bool, float, int, str, int, int]:
    """What tells which of two terminals it is where both match the same text: the lesser one."""
    return (
        -terminal.priority, not terminal.literal, -terminal.size.width, -terminal.size.length, terminal.sort_name,
        terminal.start, number,
    )  # fmt: skip


def called_terminals(
    frames: list[SymbolDfa], terminals: list[Terminal], ignore: list[int], alone: list[int], back: bool
) -> dict[int, int]:
    """Terminals that are called: all that share first symbols, if one is long; each with the number of its group.

    Args:
      frames: automata of the frames, the first one where texts start.
      terminals: all of them, settled.
      ignore: ignored terminals.
      alone: terminals that are ignored in brackets only; beside them nothing stands that begins as they do, so they are not
        called where they are single symbols.
      back: whether terminals from which a lexer goes back are to be left inline.
    """
    groups: list[tuple[int, list[int]]] = []
    for t, terminal in enumerate(terminals):
        first, alike = first_symbols(terminal.automaton.arcs[:1]), [t]
        rest = []
        for other, others in groups:
            if other & first:
                first, alike = first | other, alike + others
            else:
                rest.append((other, others))
        groups = [*rest, (first, alike)]
    long = [alike for _, alike in groups if any(len(terminals[t].automaton.final) > _LONG for t in alike)]
    back = back or any(t.soonest for t in terminals)
    gaps = gap_finder(frames, terminals, [*ignore, *alone]) if back else lambda _: False
    called = [alike for alike in long if not gaps(alike)]
    single = {t for t in alone if not any(terminals[t].automaton.arcs[1:])}
    return {t: i for i, alike in enumerate(called) for t in alike if t not in single}


def closed_frames(frames: list[SymbolDfa], lines: list[bool]) -> list[bool]:
    """Whether nothing of a called frame can follow where it ends, nor anything of a callee that ends it.

    Args:
      frames: automata of the frames, the first one where texts start.
      lines: those whose end is a line's.
    """
    closed = [k > 0 and not lines[k] and dfa.closed for k, dfa in enumerate(frames)]
    last = [{~x for arcs in dfa.arcs for x, q in arcs.items() if x < 0 and dfa.final[q]} for dfa in frames]
    while True:
        left = [own and all(closed[k] for k in callees) for own, callees in zip(closed, last, strict=True)]
        if left == closed:
            return closed
        closed = left


def gap_finder(frames: list[SymbolDfa], terminals: list[Terminal], ignore: list[int]) -> Callable[[list[int]], bool]:
    """Tells whether lexemes of some terminals that begin together can end where a longer match has begun that may still fail, or
    end as one or the other terminal by what follows.

    Args:
      frames: automata of the frames, the first one where texts start.
      terminals: all of them, settled.
      ignore: ignored terminals.

    Returns:
      a function of a list of terminals; it is False where what begins the longer match begins nothing that may follow, and True
      where that is not known within `_MOST_COMPARED` sets.
    """
    automata = [t.automaton for t in terminals]
    _, after_terminal = following(terminals, frames, ignore)

    def followed(t: int, q: int) -> bool:
        """Whether something may stand behind a terminal that ends in a state."""
        return not terminals[t].ends or bool(terminals[t].follow & ~terminals[t].guard.get(q, 0))

    def has_gap(together: list[int]) -> bool:
        start = frozenset((t, 0) for t in together)
        seen, todo = {start}, [start]
        while todo and len(seen) < _MOST_COMPARED:
            state = todo.pop()
            next_ones = union(after_terminal[t] & ~terminals[t].guard.get(q, 0) for t, q in state if automata[t].final[q])
            soon = union(terminals[t].doubt(q) for t, q in state if terminals[t].soonest and automata[t].final[q])
            for symbols, where in disjoint([(x, [(t, r)]) for t, q in state for x, r in automata[t].arcs[q]]):
                if symbols & next_ones and (symbols & soon or not any(settles(terminals[t], q) for t, q in where)):
                    return True
                ends = sorted((terminals[t].rank, t, q) for t, q in where if automata[t].final[q] and followed(t, q))
                if len(ends) > 1 and terminals[ends[0][1]].doubt(ends[0][2]):
                    return True  # what follows tells which of them it is, and so which place returns
                target = frozenset(where)
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return bool(todo)

    return has_gap


def settles(terminal: Terminal, q: int) -> bool:
    """Whether nothing shorter is read once a text leads to a state of a terminal: a match, the beginning of a character at whose
    end there is one, or a word that is reserved."""
    if terminal.automaton.final[q]:
        return q not in terminal.failing or q in terminal.reserved
    return q in terminal.sure or q in terminal.reserved


def _rivals(automata: list[Automaton]) -> list[int]:
    """Of every automaton those (a bit set) that may share a text with it: of two with one text each, only equal ones do."""
    texts = [_only_text(a) for a in automata]
    alike: dict[tuple[int, ...], int] = {}
    others = 0
    for i, text in enumerate(texts):
        if text is None:
            others |= 1 << i
        else:
            alike[text] = alike.get(text, 0) | 1 << i
    every = (1 << len(automata)) - 1
    return [every if text is None else alike[text] | others for text in texts]


def _only_text(a: Automaton) -> tuple[int, ...] | None:
    """The only text of an automaton, as sets of one letter each; None where it has more texts, or none."""
    text, q = list[int](), 0
    while not a.final[q]:
        if len(a.arcs[q]) != 1 or len(text) > len(a.arcs):
            return None
        symbols, q = a.arcs[q][0]
        if symbols & (symbols - 1):
            return None
        text.append(symbols)
    return None if a.arcs[q] else tuple(text)


def _glued(
    keyword: Automaton, unbounded: dict[int, Automaton], glued: Callable[[int, int], int]
) -> tuple[Automaton, dict[int, int]]:
    """The automaton with texts told apart by how unbounded terminals could go on from them, and by final state these symbols."""
    places, arcs = read_beside(keyword, list(unbounded.values()))
    terminals = list(unbounded)
    final = [keyword.final[p] for p, _ in places]
    after = [union(glued(terminals[i], q) for i, q in beside) if end else 0 for end, (_, beside) in zip(final, places)]
    return Automaton(arcs, final), {state: symbols for state, symbols in enumerate(after) if symbols}
