"""Canonical constraints that keep their stack."""
