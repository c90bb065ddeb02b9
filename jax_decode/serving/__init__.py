"""Constraints and rows that come and go while a batch decodes."""
