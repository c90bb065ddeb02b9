"""Automata and algorithms on them, whatever language they came from."""
