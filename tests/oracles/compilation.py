"""How programs of the tests are compiled that run long: the tests' flags ask XLA for little optimization, which suits those that run once."""

RUNS_LONG = {"xla_backend_optimization_level": 1}
"""Compiler options of a `jax.jit` whose program takes longer to run than to compile."""
