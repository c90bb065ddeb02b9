"""The automaton over tokens that accepts canonical sequences only."""
