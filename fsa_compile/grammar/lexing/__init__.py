"""Lexemes: what the terminals of a grammar match, where a lexeme ends, and which terminal it is."""
