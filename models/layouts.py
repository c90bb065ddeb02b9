"""Names of parameters: the layouts in which official Orbax checkpoints come, and the nested one that we use.

An official file holds one of
  NESTED   {'layer_0': {'attn': {'q_einsum': {'w': …}}}}
  FLAT     {'transformer/layer_0/attn/q_einsum': {'w': …}}, or the same with '&' before the last part
  STACKED  {'transformer/stacked_layers/attention_type_0/attn/q_einsum': {'w': …}}, first axis = turns of the pattern
and any of them may sit below a key 'params'. All map to flat names such as 'layer_0/attn/q_einsum/w'. Pure functions
over anything with a `shape`; no files here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_STACKED = re.compile(r"^stacked_layers/attention_type_(\d+)/(.+)$")
_PREFIXES = ("params/", "transformer/")
_MLP_WEIGHT = re.compile(r"(mlp/(?:gating_einsum|linear))/w$")
_NOT_TEXT = re.compile(r"^(vision_encoder|SigLiPFromPatches_0|embedder/mm_|collections/|opt_state/|step$)")

Slice = tuple[str, int | None]
"""Where one of our parameters lies: a stored name, and an index into its first axis (None: all of it)."""


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Leaves of a nested mapping under their paths, joined by '/'."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{path}/"))
        else:
            flat[path] = value
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The nested dict of a flat one: the inverse of `flatten`."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, leaf = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def canonical_name(stored: str) -> str | None:
    """Our flat name for a stored path, still stacked if it is stacked; None if it is no text parameter."""
    name = stored.replace("&", "/")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return None if _NOT_TEXT.match(name) else _MLP_WEIGHT.sub(r"\1", name)


def locate(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[Slice, tuple[int, ...]]]:
    """Find every text parameter in a checkpoint of any layout.

    Args:
      shapes: stored flat path → stored shape.

    Returns:
      Our flat name → where it is stored, and its shape.
    """
    names = {stored: name for stored in shapes if (name := canonical_name(stored)) is not None}
    stacked = {stored: match for stored, name in names.items() if (match := _STACKED.match(name))}
    period = 1 + max((int(match[1]) for match in stacked.values()), default=-1)
    found: dict[str, tuple[Slice, tuple[int, ...]]] = {}
    for stored, name in names.items():
        shape = tuple(shapes[stored])
        match = stacked.get(stored)
        if match is None or not shape:
            found[name] = ((stored, None), shape)
            continue
        for turn in range(shape[0]):
            layer = turn * period + int(match[1])
            found[f"layer_{layer}/{match[2]}"] = ((stored, turn), shape[1:])
    return found


def to_flat(flat: Mapping[str, Any], separator: str = "/") -> dict[str, Any]:
    """The FLAT tree of parameters given under our flat names; `separator` stands before the last part.

    With "/" the last part is a key of an inner dict, as in the released files; with "&" it stays in the name.
    """
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        owner, leaf = _with_mlp_weight(name).rsplit("/", 1)
        if separator == "&":
            tree[f"transformer/{owner}&{leaf}"] = value
        else:
            tree.setdefault(f"transformer/{owner}", {})[leaf] = value
    return tree


def to_stacked(flat: Mapping[str, Any], period: int, stack: Callable[[list[Any]], Any]) -> dict[str, Any]:
    """The STACKED tree of parameters given under our flat names; `stack` joins arrays along a new first axis."""
    groups: dict[str, dict[int, Any]] = {}
    rest: dict[str, Any] = {}
    for name, value in flat.items():
        match = re.match(r"^layer_(\d+)/(.+)$", name)
        if match is None:
            rest[name] = value
        else:
            turn, kind = divmod(int(match[1]), period)
            groups.setdefault(f"stacked_layers/attention_type_{kind}/{match[2]}", {})[turn] = value
    joined = {name: stack([turns[i] for i in sorted(turns)]) for name, turns in groups.items()}
    return to_flat({**rest, **joined})


def _with_mlp_weight(name: str) -> str:
    return f"{name}/w" if name.endswith(("mlp/gating_einsum", "mlp/linear")) else name
