"""Gathers, bit planes, columns, noise and placement: the operations that a step is made of."""
