"""Text around values: framings of responses and tool calls."""
