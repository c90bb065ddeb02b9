"""One step of a row: state, mask and transition."""
