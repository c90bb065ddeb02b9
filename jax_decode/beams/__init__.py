"""Beam search and sampling without replacement."""
