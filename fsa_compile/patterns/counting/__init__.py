"""Patterns with large counters, as machines with a register."""
