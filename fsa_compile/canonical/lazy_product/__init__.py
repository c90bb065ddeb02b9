"""Constraint and filter side by side, combined when a mask is made."""
