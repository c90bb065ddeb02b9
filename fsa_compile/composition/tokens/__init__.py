"""The vocabulary's side of composition: classes and sets of tokens."""
