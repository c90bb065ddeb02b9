"""What may be written at a place of a YAML text, as one automaton per form: scalars of a value language, keys, or both.

Where a value begins on the line of its dash, `red` may be a scalar, or a key when a colon follows. So the texts of scalars and
those of keys are read side by side, and a label says which of them a text is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

from fsa_compile.automata.labelled_dfa import TextDfa, any_text, labels_ahead, lengths, words_trie
from fsa_compile.automata.labelled_product import product
from fsa_compile.errors import LimitError
from fsa_compile.json_schema.atoms import FALSE, NULL, NUMBER, STRING, TRUE, Spelled
from fsa_compile.json_schema.decision_diagrams import FIRST_NODE, Decisions
from fsa_compile.json_schema.key_classes import KeyAutomaton
from fsa_compile.json_schema.machine_builder import Controls, Moves
from fsa_compile.json_schema.scalars import Scalars
from fsa_compile.json_schema.string_spelling import QUOTE
from fsa_compile.yaml_schema.counted_texts import CountedPlain, counted_single
from fsa_compile.yaml_schema.plain_scalars import NUMBER_PATTERN, other_keys, plain_text
from fsa_compile.yaml_schema.yaml_options import Style, YamlOptions
from fsa_compile.yaml_schema.yaml_strings import YamlSpeller, encoded

Form: TypeAlias = Literal["plain", "single", "double"]
_DASH = ord("-")
_LITERALS = ("null", "true", "false")
_UNNAMED = frozenset([1])
"""The class of keys that are not named, in automata that know no conditions."""
_LONGEST_KEY = 900
"""Characters of text of the longest key that is written: readers refuse more than 1,024."""


_LARGE = 400
"""Strings whose automaton has more states are written plain or in single quotes only when they are short."""
_MAX_CONSTANTS = 256
_constants: dict[Any, tuple[TextDfa, list[tuple[int, int]], list[tuple[bool, frozenset[int]]]]] = {}
"""Automata of places where any value of some kinds, and any key, may stand: the same for every schema."""


class YamlScalars(Scalars):
    """Strings in double quotes, as YAML escapes them."""

    def _encoded(self, word: str) -> bytes:
        return encoded(word)

    def number_dfa(self, formula: int) -> TextDfa:
        """The numbers of a formula that every reader of YAML takes for numbers."""
        d = self._decisions
        return self._number_dfa(d.choose(d.atom(Spelled(NUMBER_PATTERN)), formula, 0))

    def counted(self, formula: int) -> tuple[int, int, int] | None:
        """(rest, low, high) when the strings are those of the rest of low to high characters, and a register counts them."""
        return self._counted(formula)

    def short_dfa(self, formula: int, most: int) -> TextDfa:
        """The strings of a formula, without longer ones than `most` where length is counted or the automaton is large."""
        counted = self._counted(formula)
        if counted is None:
            dfa = self.string_dfa(formula)
            if len(dfa.rows) <= _LARGE:
                return dfa
            return product([dfa, lengths(0, most)], lambda said: said[0] if said[1] else 0, self._options.max_product, "a string")
        rest, low, high = counted
        if low > most:
            return TextDfa([()], [0])
        dfas = [self.string_dfa(rest), lengths(low, min(high, most))]
        return product(dfas, lambda said: said[0] if said[1] else 0, self._options.max_product, "the length of a string")


class Joint(NamedTuple):
    """Texts of one form at one place.

    Attributes:
      number: tells them apart.
      form: how they are quoted.
      dfa: over decoded texts; its labels are indices into `pairs`.
      pairs: (outcome of a scalar or 0, class of a key or 0); index 0 is unused.
      reach: per state whether a scalar can be reached, and the classes of keys that can.
      shared: states that are the same as one of another automaton, because no named key can be reached any more.
    """

    number: int
    form: Form
    dfa: TextDfa
    pairs: list[tuple[int, int]]
    reach: list[tuple[bool, frozenset[int]]]
    shared: dict[int, tuple[Joint, int]]


class Wanted(NamedTuple):
    """What a text may be the beginning of.

    Attributes:
      targets: (class of key, control after its colon), sorted.
      called: whether the texts are a frame of their own.
    """

    targets: tuple[tuple[int, int], ...]
    called: bool


class Texts:
    """Makes the automata, and their controls.

    Attributes:
      others: the automaton of keys that names none; what it has in common with the others is made once.
    """

    def __init__(
        self,
        controls: Controls,
        speller: YamlSpeller,
        scalars: YamlScalars,
        decisions: Decisions,
        options: YamlOptions,
        code: Callable[..., int],
    ) -> None:
        self._controls, self._speller, self._scalars = controls, speller, scalars
        self._decisions, self._options, self._code = decisions, options, code
        self._joints: dict[object, Joint | None] = {}
        self._made = 0
        self.others: KeyAutomaton | None = None
        self._endings: dict[tuple[int, int], int] = {}

    def begin(
        self,
        control: int,
        style: Style,
        formulas: tuple[int, ...] | None,
        keys: KeyAutomaton | None,
        targets: tuple[tuple[int, int], ...],
        dash: int = 0,
    ) -> Moves:
        """Lets a control begin a scalar or a key, in every form.

        Where any key may come, or a key and a scalar, the text is a frame of its own, which all such places share.

        Args:
          style: of the collection that all this stands in.
          formulas: the scalars, as a value's formulas; None: no scalar.
          keys: the automaton of keys.
          targets: (class of key, control after its colon), sorted.
          dash: the control after a dash and a space, 0 when none may come.

        Returns:
          Moves for the control; a call has been added to it.
        """
        if keys is None or not targets or (formulas is None and all(keys.classes[c].key is not None for c, _ in targets)):
            return self._first_moves(style, formulas, keys, Wanted(targets, False), dash)
        controls, code = self._controls, self._code
        classes = tuple([c for c, _ in targets])
        read = formulas[: STRING + 1] if formulas is not None else None
        outcomes = set().union(*map(self._decisions.leaves, read)) - {0} if read is not None else set()
        returns = {code("key", c): target for c, target in targets} | {code("scalar", o): controls.final(o) for o in outcomes}
        if dash:
            returns[code("dash")] = dash

        def make(entry: int) -> None:
            wanted = Wanted(tuple([(c, controls.final(code("key", c))) for c in classes]), True)
            after_dash = controls.final(code("dash")) if dash else 0
            controls.moves[entry] = self._first_moves(style, formulas, keys, wanted, after_dash)

        entry = controls.later(("texts", style, read, keys.number, classes, bool(dash)), make)
        controls.add_call(control, controls.symbol(tuple(sorted(returns.items()))), entry)
        return ()

    def _first_moves(
        self, style: Style, formulas: tuple[int, ...] | None, keys: KeyAutomaton | None, targets: Wanted, dash: int
    ) -> Moves:
        out: list[tuple[int, int, int]] = []
        plain = self._joint("plain", style, formulas, keys if targets.targets else None)
        counted = self._counted_only(style, formulas) if formulas is not None and not targets.targets and not dash else None
        if counted is not None:
            any_length, rest, low, high = counted
            of_plain = (any_length.number, any_length.dfa, rest, self._code, (low, high), self._options.max_plain)
            out += CountedPlain(self._controls, self._speller, *of_plain).first()
        elif plain is not None:
            out += self._moves(plain, 0, targets)
        if dash:
            out = [*_without(out, _DASH), (_DASH, _DASH, self._after_dash(plain, targets, dash))]
        quoted: tuple[tuple[int, Form], ...] = ((QUOTE, "double"), (ord("'"), "single"))
        for mark, form in quoted:
            if not targets.targets and form == "double":
                begun = self._scalars.string(formulas[STRING]) if formulas is not None and formulas[STRING] else 0
            elif counted is not None:
                _, rest, low, high = counted
                begun = counted_single(self._controls, self._speller, rest, self._code, low, high)
            else:
                joint = self._joint(form, style, formulas, keys if targets.targets else None)
                begun = self._control(joint, 0, targets) if joint is not None else 0
            if begun:
                out.append((mark, mark, begun))
        return tuple(out)

    def _counted_only(self, style: Style, formulas: tuple[int, ...]) -> tuple[Joint, int, int, int] | None:
        """(plain texts of any length, outcome, low, high) where a string's length is all that is asked for, and is counted."""
        counted = self._scalars.counted(formulas[STRING]) if formulas[STRING] and not any(formulas[:STRING]) else None
        if counted is None or counted[0] >= FIRST_NODE:
            return None
        joint = self._joint("plain", style, (*formulas[:STRING], counted[0]), None)
        return None if joint is None else (joint, *counted)

    def _after_dash(self, plain: Joint | None, targets: Wanted, dash: int) -> int:
        """The control after a dash that begins an element, a number or a text."""
        space = (ord(" "), ord(" "), dash)
        after = _next(plain, 0, _DASH) if plain is not None else None
        left = self._within(plain, after, targets) if plain is not None and after is not None else None
        if plain is None or after is None or left is None:
            return self._controls.node((space,))

        def make(control: int) -> None:
            self._controls.moves[control] = (*self._moves(plain, after, left), space)

        return self._controls.later(("dash", plain.number, left, dash), make)

    # automata

    def _joint(self, form: Form, style: Style, formulas: tuple[int, ...] | None, keys: KeyAutomaton | None) -> Joint | None:
        read = formulas and (formulas[: STRING + 1] if form == "plain" else formulas[STRING : STRING + 1])
        key = (form, style if form == "plain" else "", read, keys.number if keys is not None else -1)
        if key not in self._joints:
            self._joints[key] = self._make(form, style, formulas, keys)
        return self._joints[key]

    def _make(self, form: Form, style: Style, formulas: tuple[int, ...] | None, keys: KeyAutomaton | None) -> Joint | None:
        read = formulas[: STRING + 1] if formulas is not None else ()
        unnamed = keys is not None and self.others is not None and keys.number == self.others.number
        if all(f < FIRST_NODE for f in read) and (keys is None or unnamed):
            constant = (form, style, formulas is None, read, keys is None, self._options.max_key_length)
            found = _constants.get(constant)
            if found is None:
                if len(_constants) >= _MAX_CONSTANTS:
                    _constants.clear()
                found = _constants[constant] = self._automaton(form, style, formulas, keys)
        else:
            found = self._automaton(form, style, formulas, keys)
        dfa, pairs, reach = found
        if not any(dfa.labels):
            return None
        self._made += 1
        joint = Joint(self._made, form, dfa, pairs, reach, {})
        if keys is not None and keys.depth and self.others is not None and keys.number != self.others.number:
            self._share(joint, self._joint(form, style, formulas, self.others))
        return joint

    def _automaton(
        self, form: Form, style: Style, formulas: tuple[int, ...] | None, keys: KeyAutomaton | None
    ) -> tuple[TextDfa, list[tuple[int, int]], list[tuple[bool, frozenset[int]]]]:
        """The automaton of a place, the pairs that its labels stand for, and what its states reach."""
        parts: dict[str, TextDfa] = {}
        if formulas is not None:
            if form == "plain" and any(formulas[: FALSE + 1]):
                parts["literal"] = words_trie(_LITERALS, number=True)
            if form == "plain" and formulas[NUMBER]:
                parts["number"] = self._scalars.number_dfa(formulas[NUMBER])
            if formulas[STRING]:
                if form == "double":
                    parts["string"] = self._scalars.string_dfa(formulas[STRING])
                else:
                    parts["string"] = self._scalars.short_dfa(formulas[STRING], self._options.max_plain)
                if form == "plain":
                    parts["text"] = plain_text(style)
        if keys is not None:
            most = self._options.max_key_length
            parts["key"], parts["length"] = keys.dfa(), other_keys(most, numeric=form == "plain")
            if form == "plain":
                parts["key text"] = plain_text(style, key=True)
        if not parts:
            return TextDfa([()], [0]), [(0, 0)], [(False, frozenset())]
        pairs: list[tuple[int, int]] = [(0, 0)]
        index: dict[tuple[int, int], int] = {(0, 0): 0}
        names = list(parts)

        def label(said: tuple[int, ...]) -> int:
            says = dict(zip(names, said))
            pair = self._scalar(says, formulas, form), self._key_class(says, keys, form)
            if pair not in index:
                index[pair] = len(pairs)
                pairs.append(pair)
            return index[pair]

        most_states, doing = self._options.schema.max_product, "the scalars and keys of one place"
        try:
            dfa = product([*parts.values(), any_text()], label, most_states, doing)
        except LimitError:
            if form != "plain" or formulas is None or not formulas[STRING]:
                raise
            return self._automaton(form, style, (*formulas[:STRING], 0, *formulas[STRING + 1 :]), keys)  # strings have quotes
        return dfa, pairs, _reachable(dfa, pairs)

    def _share(self, joint: Joint, other: Joint | None) -> None:
        """Finds the states from which only keys that are not named, and scalars, can be reached."""
        if other is None:
            return
        todo, seen = [(0, 0)], {0}
        while todo:
            state, same = todo.pop()
            if joint.reach[state][1] <= _UNNAMED:
                joint.shared[state] = (other, same)
                continue
            for low, _, after in joint.dfa.rows[state]:
                there = _next(other, same, low)
                if after not in seen and there is not None:
                    seen.add(after)
                    todo.append((after, there))

    @staticmethod
    def _scalar(says: dict[str, int], formulas: tuple[int, ...] | None, form: Form) -> int:
        """The outcome of a text as a scalar."""
        if formulas is None:
            return 0
        if says.get("literal"):
            return formulas[(NULL, TRUE, FALSE)[says["literal"] - 1]]
        if says.get("number"):
            return says["number"]
        return says.get("string", 0) if form != "plain" or says.get("text") else 0

    def _key_class(self, says: dict[str, int], keys: KeyAutomaton | None, form: Form) -> int:
        """The class of a text as a key."""
        found = says.get("key", 0)
        if keys is None or not found or (form == "plain" and not says["key text"]):
            return 0
        name = keys.classes[found].key
        if name is None:
            return found if says["length"] else 0
        return found if len(encoded(name)) <= _LONGEST_KEY else 0

    # controls

    def _within(self, joint: Joint, state: int, targets: Wanted) -> Wanted | None:
        """The targets that a state can still reach; None when it reaches no scalar either."""
        scalar, classes = joint.reach[state]
        left = tuple([target for target in targets.targets if target[0] in classes])
        return Wanted(left, targets.called) if left or scalar else None

    def _control(self, joint: Joint, state: int, targets: Wanted) -> int:
        """The control of a state, 0 when it leads nowhere."""
        joint, state = joint.shared.get(state, (joint, state))
        left = self._within(joint, state, targets)
        if left is None:
            return 0

        def make(control: int) -> None:
            self._controls.moves[control] = self._moves(joint, state, left)
            if joint.form == "plain":
                self._controls.outcome[control] = self._outcome(joint.pairs[joint.dfa.labels[state]][0], left)

        return self._controls.later(("text", joint.number, state, left), make)

    def _moves(self, joint: Joint, state: int, targets: Wanted) -> Moves:
        row = []
        for low, high, after in joint.dfa.rows[state]:
            below = self._control(joint, after, targets)
            if below:
                row.append((low, high, below))
        outcome, of_key = joint.pairs[joint.dfa.labels[state]]
        value = next((target for c, target in targets.targets if c == of_key), 0) if of_key else 0
        if joint.form == "plain":
            return self._plain(joint, state, targets, row, value)
        close = self._closed(self._outcome(outcome, targets), value)
        if joint.form == "single":
            return self._speller.single(tuple(row), close)
        return self._speller.body(tuple(row), close, "shortest")

    def _outcome(self, outcome: int, targets: Wanted) -> int:
        """The outcome of a frame that ends with a scalar of an outcome."""
        return self._code("scalar", outcome) if outcome and targets.called else outcome

    def _closed(self, outcome: int, value: int) -> int:
        """The control after a closing quote: the end of a scalar, the colon of a key, or either."""
        colon = ((ord(":"), ord(":"), value),) if value else ()
        if not outcome:
            return self._controls.node(colon)
        if not colon:
            return self._controls.final(outcome)
        found = self._endings.get((outcome, value))
        if found is None:
            found = self._endings[outcome, value] = self._controls.new(colon, outcome)
        return found

    def _plain(
        self, joint: Joint, state: int, targets: Wanted, row: list[tuple[int, int, int]], value: int
    ) -> Moves:
        """The moves of a plain text; a colon is one of its characters, or ends a key."""
        out = self._speller.plain(tuple(row))
        if not value:
            return out
        colon = ord(":")
        after = _next(joint, state, colon)
        going_on = self._within(joint, after, targets) if after is not None else None

        def make(control: int) -> None:
            more = self._moves(joint, after, going_on) if after is not None and going_on is not None else ()
            self._controls.moves[control] = (*self._controls.moves[value], *more)
            self._controls.outcome[control] = self._controls.outcome[value]

        control = self._controls.later(("colon", joint.number, state, value, going_on), make)
        return (*_without(out, colon), (colon, colon, control))


def _next(joint: Joint, state: int, character: int) -> int | None:
    """The state after one more character."""
    return next((t for low, high, t in joint.dfa.rows[state] if low <= character <= high), None)


def _without(moves: Iterable[tuple[int, int, int]], byte: int) -> list[tuple[int, int, int]]:
    """The moves on other bytes."""
    out = []
    for low, high, target in moves:
        if low <= byte <= high:
            out += [(a, z, target) for a, z in ((low, byte - 1), (byte + 1, high)) if a <= z]
        else:
            out.append((low, high, target))
    return out


def _reachable(dfa: TextDfa, pairs: list[tuple[int, int]]) -> list[tuple[bool, frozenset[int]]]:
    """Per state whether a scalar can be reached, and the classes of keys that can."""
    ahead = labels_ahead(dfa)
    return [(any(pairs[i][0] for i in labels), frozenset(pairs[i][1] for i in labels if pairs[i][1])) for labels in ahead]
