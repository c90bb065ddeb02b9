"""Pattern text to automaton: Python and ECMA syntax, Glushkov, alternation, counting."""
