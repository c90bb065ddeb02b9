"""What a compiled constraint accepts, told to people: sizes, shortest and random texts, and why a text is refused.

Reads an artifact and a vocabulary, NumPy only. Drawings belong to `draw`, printing to `cli`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import check_vocabulary
from fsa_compile.artifact.bitmask import BitmaskWalk
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.artifact.item_trie import CompiledItems
from fsa_compile.artifact.stack_view import StackView, effects, stack_at
from fsa_compile.errors import CallError, ConstraintError, naming, shown, whole
from fsa_compile.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fsa_compile.inspection.schema_lint import Note

Verdict = Literal["accepted", "incomplete", "refused"]
_EXAMPLES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistics:
    """Sizes of a compiled constraint.

    Attributes:
      states: token states, the dead one not counted.
      accepting: how many of them accept.
      rows: distinct token sets stored as bit rows, the empty one not counted.
      groups, arcs: outgoing sets stored wide and narrow.
      max_groups: most wide sets of one state, what one device step tests.
      levels: mask rows of all states together, one per completion cost.
      max_levels: most of one state.
      nbytes: bytes of the artifact's arrays.
      vocab_size: token ids.
      shortest: least number of tokens of an accepted text (with a stack: a number that suffices).
      longest: most tokens of one, or None when there is no bound or a stack.
      stacks: configurations followed at once.
      symbols: stack symbols; 0 without a stack.
      max_pops: D, most stack cells one token pops.
      max_push: most stack cells one token pushes.
      step_bytes: most bytes of mask rows that one decoding step reads for one sequence: D + 1 rows for each stack. Of a set of
        items, those of the longest list of tokens and distances, for which the device may have a row of bits instead.
      open_objects: of a JSON Schema, JSON pointers of the objects that may have keys that it does not name.
    """

    states: int
    accepting: int
    rows: int
    groups: int
    arcs: int
    max_groups: int
    levels: int
    max_levels: int
    nbytes: int
    vocab_size: int
    shortest: int
    longest: int | None
    stacks: int
    symbols: int
    max_pops: int
    max_push: int
    step_bytes: int
    open_objects: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """How far a text gets in a constraint.

    Attributes:
      verdict: "accepted"; "incomplete" (it can be continued to an accepted text); "refused".
      ids: the tokens that were tried.
      position: number of tokens that were allowed; in a refused text the refused token is `ids[position]`.
      token: id of the refused token, or None.
      token_bytes: what that token writes (b"" for ids that are not text, and for None).
      matched: bytes of the text that some accepted text starts with, counted inside the refused token too.
      allowed_count: tokens allowed after the first `position` ones, end-of-text ids not counted.
      allowed_bytes: bool[256], bytes those tokens begin with.
      examples: a few of them: ids.
      stop_allowed: whether the text may end after the first `position` tokens.
      completion: a shortest continuation of those tokens to an accepted text: ids, empty where they are accepted.
      stack: the open frames after the first `position` tokens, one view per stack.
      too_deep: whether the refused token would be allowed without the limit on the stack.
    """

    verdict: Verdict
    ids: tuple[int, ...]
    position: int
    token: int | None
    token_bytes: bytes
    matched: int
    allowed_count: int
    allowed_bytes: NDArray[np.bool_]
    examples: tuple[int, ...]
    stop_allowed: bool
    completion: tuple[int, ...]
    stack: tuple[StackView, ...]
    too_deep: bool

    @property
    def accepted(self) -> bool:
        """Whether the whole text belongs to the language."""
        return self.verdict == "accepted"


@naming(CallError)
def statistics(constraint: CompiledConstraint | CompiledItems) -> Statistics:
    """Sizes of the constraint, and the lengths of its texts in tokens; of a set of items, those of its trie."""
    c = constraint
    if isinstance(c, CompiledItems):
        return _of_items(c)
    _compiled(c)
    return Statistics(
        states=c.num_nodes - 1,
        accepting=int(c.accept.sum()),
        rows=c.num_rows - 1,
        groups=len(c.group_row),
        arcs=len(c.arc_token),
        max_groups=c.max_groups,
        levels=len(c.level_row),
        max_levels=int(np.diff(c.level_offset).max()),
        nbytes=c.nbytes,
        vocab_size=c.vocab_size,
        shortest=c.shortest_completion,
        longest=None if c.num_symbols else _longest(c),
        stacks=c.stacks,
        symbols=c.num_symbols,
        max_pops=c.max_pops,
        max_push=c.max_push,
        step_bytes=c.stacks * (c.max_pops + 1) * c.rows.shape[1] * 4,
        open_objects=c.open_objects,
    )


def _of_items(items: CompiledItems) -> Statistics:
    most = int(np.diff(items.first).max())
    return Statistics(
        states=items.num_nodes,
        accepting=items.num_items,
        rows=0,
        groups=0,
        arcs=items.num_nodes - 1,
        max_groups=0,
        levels=0,
        max_levels=0,
        nbytes=items.nbytes,
        vocab_size=items.vocab_size,
        shortest=items.shortest_completion,
        longest=items.longest,
        stacks=1,
        symbols=0,
        max_pops=0,
        max_push=0,
        step_bytes=most * (items.token.itemsize + items.distance.itemsize),
    )


def _compiled(constraint: Any, *others: type) -> Any:
    """A constraint, or one of other types, as given; raises `ConstraintError` for anything else."""
    if not isinstance(constraint, (CompiledConstraint, *others)):
        fix = "Give a compiled one: compile_regex(pattern, tokenizer)."
        raise ConstraintError(f"the constraint is {shown(constraint)}", fix=fix)
    return constraint


def shortest_tokens(constraint: CompiledConstraint, walk: HostWalk | None = None) -> list[int]:
    """A shortest sequence of tokens to an accepted text; among equals the one of lowest ids.

    With a stack it may be a little longer than the shortest: one token that closes several frames is counted once for each.

    Args:
      constraint: the artifact.
      walk: where to begin, left as it is; by default the start of the text.

    Returns:
      Token ids, without an end-of-text id; empty when the text is accepted already.

    Examples:
      >>> from fsa_compile import Vocabulary, compile_regex
      >>> shortest_tokens(compile_regex("a{3}", Vocabulary.from_tokens([b"a", b"aa"])))
      [0, 1]
    """
    walk = _compiled(constraint, CompiledItems).walk() if walk is None else walk
    if not isinstance(walk, BitmaskWalk):
        raise ConstraintError(f"the walk is {shown(walk)}", fix="Give one of constraint.walk(), or leave it out.")
    ids: list[int] = []
    while not walk.accepting:
        left = walk.distance
        ids.append(int(np.argmax(walk.allowed(left))))
        walk.advance(ids[-1], left)
    walk.rewind(len(ids))
    return ids


@naming(CallError)
def sample(
    constraint: CompiledConstraint, *, seed: int = 0, max_tokens: int = 64, stop: float = 0.3, max_depth: int | None = None
) -> list[int]:
    """A random accepted sequence of tokens; it always finishes.

    At each step an effect is drawn first (where the token leads and what it does to the stack) and then one of the tokens that
    have it, so that rare turns of the language are seen beside the thousands of tokens of a free text. This is for looking at
    a constraint; it is no uniform draw from the language.

    Args:
      constraint: the artifact.
      seed: of the draws; equal seeds give equal samples.
      max_tokens: no longer than this, unless even the shortest accepted text is.
      stop: probability to end where the text is accepted.
      max_depth: most stack cells; None for no limit. At least `constraint.shortest_depth` is always allowed.

    Returns:
      Token ids, without an end-of-text id.
    """
    if not isinstance(stop, (int, float)):
        raise ConstraintError(f"stop is {shown(stop)}", fix="Give a probability, such as 0.3.")
    draw = np.random.default_rng(whole(seed, "the seed", (1 << 63) - 1))
    least = _compiled(constraint).shortest_depth
    walk = constraint.walk(None if max_depth is None else max(whole(max_depth, "max_depth"), least))
    left = max(whole(max_tokens, "max_tokens"), constraint.shortest_completion)
    ids: list[int] = []
    while True:
        fits = walk.allowed(left) if left else np.zeros(constraint.vocab_size, bool)
        effect = np.where(fits, effects(walk), 0)
        if not effect.any() or (walk.accepting and draw.random() < stop):
            return ids
        chosen = draw.choice(np.unique(effect[effect > 0]))
        ids.append(int(draw.choice(np.flatnonzero(effect == chosen))))
        walk.advance(ids[-1], left)
        left -= 1


@naming(CallError)
def explain(
    constraint: CompiledConstraint, tokenizer: Any, text: str | bytes | Iterable[int], *, max_depth: int | None = None
) -> Explanation:
    """Whether a text is accepted, and where and why it is not.

    A text is accepted or not whatever its tokens are. Which token it stops at depends on them: they are the tokenizer's own
    where these spell exactly this text, else the longest token that fits, again and again.

    Args:
      constraint: the artifact.
      tokenizer: the tokenizer the constraint was compiled for, or its vocabulary.
      text: text, exact bytes, or token ids; a trailing end-of-text id is allowed.
      max_depth: most stack cells; None for no limit.

    Raises:
      ArtifactError: the constraint belongs to another vocabulary.
      ConstraintError: an id is no id of the vocabulary, or no tokens spell the text.
    """
    check_vocabulary(constraint, tokenizer)
    vocabulary: Vocabulary = getattr(tokenizer, "vocabulary", tokenizer)
    if isinstance(text, (str, bytes)):
        data = _utf8(text) if isinstance(text, str) else text
        ids = spell(tokenizer, text)
    else:
        if not isinstance(text, Iterable):
            what = f"the text is a {type(text).__name__}"
            raise ConstraintError(what, fix="Pass a str, exact bytes, or a list of token ids.")
        ids = _checked_ids(constraint, text)
        data = vocabulary.decode_bytes(ids)
    walk = constraint.walk(max_depth)
    for token in ids:
        if not walk.allowed()[token]:
            break
        walk.advance(token)
    position = walk.num_tokens
    refused = ids[position] if position < len(ids) else None
    verdict: Verdict = "accepted" if walk.accepting else "incomplete"
    effect = effects(walk)
    allowed = np.flatnonzero(effect)
    matched, too_deep = len(data), False
    if refused is not None:
        verdict = "refused"
        begin = len(vocabulary.decode_bytes(ids[:position]))
        matched = begin + _matched_inside(walk, vocabulary, vocabulary.tokens[refused])
        too_deep = max_depth is not None and _unlimited(constraint, ids[:position]).next_node(refused) > 0
    return Explanation(
        verdict=verdict,
        ids=tuple(ids),
        position=position,
        token=refused,
        token_bytes=b"" if refused is None else vocabulary.decode_bytes([refused]),
        matched=matched,
        allowed_count=len(allowed),
        allowed_bytes=_first_bytes(vocabulary, allowed),
        examples=_examples(vocabulary, effect),
        stop_allowed=walk.accepting and not walk.finished,
        completion=tuple(shortest_tokens(constraint, walk)) if walk.need <= walk.max_depth else (),
        stack=stack_at(constraint, ids[:position]),
        too_deep=too_deep,
    )


def lint(schema: Any) -> list[Note]:
    """See `fsa_compile.inspection.schema_lint.lint`; needs what compiling needs."""
    from fsa_compile.inspection.schema_lint import lint as notes_of

    return notes_of(schema)


def _unlimited(constraint: CompiledConstraint, ids: Iterable[int]) -> HostWalk:
    walk = constraint.walk()
    for token in ids:
        walk.advance(token)
    return walk


@naming(CallError)
def spell(tokenizer: Any, text: str | bytes) -> list[int]:
    """Token ids that write exactly this text.

    They are the tokenizer's own where those write exactly this text (a tokenizer that adds a space before the first word does
    not), else the longest token that fits, again and again; where that gets stuck, any sequence.

    Args:
      tokenizer: a tokenizer or a vocabulary.
      text: text, or exact bytes.

    Raises:
      ConstraintError: no sequence of tokens writes it.
    """
    vocabulary: Vocabulary = getattr(tokenizer, "vocabulary", tokenizer)
    data = text.encode() if isinstance(text, str) else text
    if isinstance(text, str) and hasattr(tokenizer, "encode"):
        ids = list(tokenizer.encode(text))
        if vocabulary.decode_bytes(ids) == data:
            return ids
    tokens = _tokens_within(vocabulary, data)
    longest = max(map(len, tokens), default=0)
    spelled: list[list[int] | None] = [None] * len(data) + [[]]
    for begin in range(len(data) - 1, -1, -1):  # from the end, so that the longest token that can go on is known
        for end in range(min(len(data), begin + longest), begin, -1):
            rest, token_id = spelled[end], tokens.get(data[begin:end])
            if rest is not None and token_id is not None:
                spelled[begin] = [token_id, end]
                break
    if spelled[0] is None:
        raise ConstraintError(
            f"no sequence of this vocabulary's tokens writes {_shown(data)}",
            fix="Use characters its tokens can write, or a tokenizer with byte tokens.",
        )
    ids, at = [], 0
    while at < len(data):
        token_id, at = spelled[at]  # type: ignore[misc]
        ids.append(token_id)
    return ids


def token_text(written: bytes) -> str:
    r"""The bytes of a token for people: printable characters as they are, others escaped, bytes alone as `\x..`.

    Examples:
      >>> token_text("é\n".encode()), token_text(b"\xc3")
      ('é\\n', '\\xc3')
    """
    text = written.decode("utf-8", errors="backslashreplace") if written else "∅"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def byte_ranges(present: NDArray[np.bool_]) -> str:
    """A set of bytes as ranges, such as `0-9 a-z \\xc3-\\xf4`; a range of two is written as two bytes."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], present, [False]]).astype(np.int8)))
    parts = []
    for low, high in zip(edges[::2], edges[1::2] - 1):
        ends = [_byte(low)] if low == high else [_byte(low), _byte(high)]
        parts.append(("-" if high - low > 1 else " ").join(ends))
    return " ".join(parts)


def _byte(value: int) -> str:
    named = {0x20: "space", 0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}.get(int(value))
    return named or (chr(value) if 0x21 <= value <= 0x7E else f"\\x{value:02x}")


def _shown(data: bytes, width: int = 60) -> str:
    text = token_text(data)
    return repr(text if len(text) <= width else text[: width - 1] + "…")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConstraintError(
            f"the text is not Unicode: it holds a lone surrogate at offset {error.start}", fix="Give text in UTF-8, or bytes."
        ) from None


def _checked_ids(constraint: CompiledConstraint, ids: Iterable[int]) -> list[int]:
    out = []
    for position, token in enumerate(ids):
        if isinstance(token, bool) or not isinstance(token, (int, np.integer)) or not 0 <= token < constraint.vocab_size:
            raise ConstraintError(
                f"{token!r} is no token id of a vocabulary of {constraint.vocab_size:,}",
                where=f"position {position} of the sequence",
                fix="Give ids made with the constraint's tokenizer.",
            )
        out.append(int(token))
    return out


def _tokens_within(vocabulary: Vocabulary, data: bytes) -> dict[bytes, int]:
    """The tokens that occur in `data`, the lowest id of equal ones."""
    found: dict[bytes, int] = {}
    for token, written in enumerate(vocabulary.tokens):
        if written and written in data:
            found.setdefault(written, token)
    return found


def _matched_inside(walk: HostWalk, vocabulary: Vocabulary, data: bytes) -> int:
    """Most leading bytes of `data` that some accepted text goes on with, from where a walk is, spelled by any tokens."""
    tokens = _tokens_within(vocabulary, data)
    paths: dict[int, list[int]] = {0: []}
    best = 0
    for begin in range(len(data)):
        if begin not in paths:
            continue
        for step in paths[begin]:
            walk.advance(step)
        allowed = effects(walk) > 0
        walk.rewind(len(paths[begin]))
        best = max(best, begin + _overlap(vocabulary, np.flatnonzero(allowed), data[begin:]))
        for end in range(begin + 1, len(data)):
            token = tokens.get(data[begin:end])
            if token is not None and allowed[token]:
                paths.setdefault(end, [*paths[begin], token])
    return best


def _overlap(vocabulary: Vocabulary, ids: NDArray[np.int64], data: bytes) -> int:
    """Most leading bytes that `data` has in common with one of the tokens."""
    joined, offsets = vocabulary.packed
    begin, end = offsets[ids], offsets[ids + 1]
    for length, byte in enumerate(data):
        longer = begin + length < end
        begin, end = begin[longer], end[longer]
        same = joined[begin + length] == byte
        begin, end = begin[same], end[same]
        if not len(begin):
            return length
    return len(data)


def _first_bytes(vocabulary: Vocabulary, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    joined, offsets = vocabulary.packed
    present = np.zeros(256, bool)
    present[joined[offsets[ids]]] = True
    return present


def _examples(vocabulary: Vocabulary, targets: NDArray[np.int32]) -> tuple[int, ...]:
    """A few allowed tokens that tell most: one per effect where there are few, then common ones that begin differently."""
    which, counts = np.unique(targets[targets > 0], return_counts=True)
    which = which[np.argsort(counts, kind="stable")]
    few = which if len(which) <= _EXAMPLES // 2 else which[:0]  # many say little: one for each length that is left, it may be
    order = [_telling(vocabulary, np.flatnonzero(targets == t).tolist())[0] for t in few]
    order += _telling(vocabulary, np.flatnonzero(targets).tolist())
    chosen: dict[bytes, int] = {}  # several ids may write the same bytes
    for token in order:
        if len(chosen) < _EXAMPLES:
            chosen.setdefault(vocabulary.tokens[token], token)
    return tuple(chosen.values())


def _telling(vocabulary: Vocabulary, ids: list[int]) -> list[int]:
    """The ids in the order in which they are worth showing: one of each kind of beginning, one of each first byte, the rest.

    In most vocabularies low ids are common tokens.
    """
    tokens = vocabulary.tokens
    ids = sorted(ids, key=lambda i: (not _legible(tokens[i]), len(tokens[i]) == 1, i))
    kinds: dict[str, int] = {}
    bytes_: dict[int, int] = {}
    for i in ids:
        first = tokens[i][:1]
        kind = "letter" if first.isalpha() else "digit" if first.isdigit() else "byte" if first[0] > 126 else first.decode()
        kinds.setdefault(kind, i)
        bytes_.setdefault(first[0], i)
    return list(dict.fromkeys([*kinds.values(), *bytes_.values(), *ids[: 4 * _EXAMPLES]]))


def _legible(written: bytes) -> bool:
    return written.isascii() and written.decode().isprintable() and not written.isspace()


def _longest(c: CompiledConstraint) -> int | None:
    """Most tokens of an accepted text, None when a cycle can be reached (every state is on the way to acceptance)."""
    sources = np.concatenate([np.repeat(np.arange(c.num_nodes), np.diff(o)) for o in (c.group_offset, c.arc_offset)])
    edges = np.unique(np.stack([sources, np.concatenate([c.group_next, c.arc_next])], 1), axis=0)
    order = np.searchsorted(edges[:, 0], np.arange(c.num_nodes + 1))
    indegree = np.bincount(edges[:, 1], minlength=c.num_nodes)
    length = np.zeros(c.num_nodes, np.int64)
    ready = np.flatnonzero(indegree == 0).tolist()
    done = 0
    while ready:
        node = ready.pop()
        done += 1
        for target in edges[order[node] : order[node + 1], 1].tolist():
            length[target] = max(length[target], length[node] + 1)
            indegree[target] -= 1
            if indegree[target] == 0:
                ready.append(target)
    return int(length.max()) if done == c.num_nodes else None
