"""The vocabulary's side of composition: classes, subtrees and sets of tokens."""
