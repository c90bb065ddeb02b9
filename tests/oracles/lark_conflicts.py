"""Lark's LALR parser of a grammar, where it reads all of the grammar."""

from __future__ import annotations

import logging
from pathlib import Path

import lark


class Conflicts(logging.Handler):
    """Notes whether Lark chose between shifting and reducing, which it says in its log alone: it reads less of a grammar then."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.met = False

    def emit(self, record: logging.LogRecord) -> None:
        self.met |= "conflict" in record.getMessage()


def larks_parser(grammar: str | Path, **options: str) -> lark.Lark | None:
    """Its parser of a text or a file; None where it refuses the grammar, or silently reads only a part of it."""
    noted, log = Conflicts(), lark.logger
    before = log.level, log.handlers, log.propagate
    log.setLevel(logging.DEBUG)
    log.handlers, log.propagate = [noted], False  # all the others would keep or print what it says
    try:
        make = lark.Lark.open if isinstance(grammar, Path) else lark.Lark
        parser = make(str(grammar), parser="lalr", debug=True, **options)
    except lark.exceptions.LarkError:
        return None
    finally:
        log.setLevel(before[0])
        log.handlers, log.propagate = before[1:]
    return None if noted.met else parser
