"""The product of constraint and filter, written out."""
