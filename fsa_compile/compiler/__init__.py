"""The order of the steps, and nothing else: arguments, machine, canonical form, cache."""
