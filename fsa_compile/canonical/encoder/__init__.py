"""A tokenizer's merges and splitting, read from its files."""
