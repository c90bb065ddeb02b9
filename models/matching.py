"""Compares the parameters a configuration needs with those a checkpoint holds, before any array is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from models.config import CONFIGS, GemmaConfig
from models.errors import CheckpointError

_FLOATS = ("bfloat16", "float16", "float32", "float64")
_SHOWN = 3

Shape = tuple[int, ...]


def check_parameters(
    wanted: Mapping[str, Shape], found: Mapping[str, Shape], config: GemmaConfig, where: str
) -> None:
    """Check that the checkpoint holds exactly the wanted names and shapes.

    Args:
      wanted: parameter name → shape that the configuration asks for.
      found: parameter name → shape in the checkpoint.
      config: the configuration, for the hint in the error.
      where: the checkpoint's path.

    Raises:
      CheckpointError: names are missing or left over, or a shape differs. One error, the first of these.
    """
    missing, extra = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    fix = _hint(found, config)
    if missing:
        raise CheckpointError(f"The checkpoint lacks {_listed(missing)}.", where=where, fix=fix)
    if extra:
        raise CheckpointError(
            f"The checkpoint holds {_listed(extra)}, which the configuration does not have.", where=where, fix=fix
        )
    wrong = [name for name in wanted if tuple(wanted[name]) != tuple(found[name])]
    if wrong:
        name = wrong[0]
        more = f" ({len(wrong) - 1:,} more differ)" if len(wrong) > 1 else ""
        raise CheckpointError(
            f"Parameter {name} has shape {tuple(found[name])}; the configuration needs "
            f"{tuple(wanted[name])}{more}.",
            where=where,
            fix=fix,
        )


def check_storage_dtypes(dtypes: Mapping[str, str], where: str) -> None:
    """Check that every parameter is stored as a floating-point number.

    Raises:
      CheckpointError: one is not; it is probably quantised.
    """
    for name, dtype in dtypes.items():
        if dtype not in _FLOATS:
            raise CheckpointError(
                f"Parameter {name} is stored as {dtype}.",
                where=where,
                fix="Quantised checkpoints are not supported: load one in bfloat16 or float32.",
            )


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names, key=lambda name: [int(part) if part.isdigit() else part for part in _split(name)])
    shown = ", ".join(ordered[:_SHOWN])
    return f"{shown} and {len(ordered) - _SHOWN:,} more" if len(ordered) > _SHOWN else shown


def _split(name: str) -> list[str]:
    """Text and numbers in turn, so that layer 2 is listed before layer 10."""
    return re.split(r"(\d+)", name)


def _hint(found: Mapping[str, Shape], config: GemmaConfig) -> str:
    """The published sizes that have the checkpoint's depth and width, if any."""
    layers = {int(match[1]) for name in found if (match := re.match(r"layers?[._](\d+)", name))}
    widths = {shape[0] for name, shape in found.items() if re.search(r"final_norm/scale|^norm\.weight", name)}
    depth = 1 + max(layers, default=-1)
    fitting = [
        name for name, known in CONFIGS.items() if known.num_layers == depth and {known.embed_dim} == widths
    ]
    if fitting and config not in (CONFIGS[name] for name in fitting):
        return f"Its depth and width are those of {' or '.join(fitting)}: load it under that name."
    return "Check that the configuration is the one the checkpoint was made with."
