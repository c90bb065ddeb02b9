"""Text put before a compiled constraint."""
