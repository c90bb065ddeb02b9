"""Many constraints at once."""
