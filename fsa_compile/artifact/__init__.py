"""The compiled constraint: its arrays, file, checks and NumPy execution; imports NumPy only."""

from fsa_compile.artifact.constraint import CompiledConstraint as CompiledConstraint
