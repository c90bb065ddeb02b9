"""Sets of code points and Unicode properties."""
