"""The command line."""

from fsa_compile.cli.commands import main as main

__all__ = ["main"]
