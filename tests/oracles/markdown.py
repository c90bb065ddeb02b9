"""Code blocks of Markdown pages."""

from __future__ import annotations

import re


def python_blocks(text: str) -> list[str]:
    """Contents of the fenced Python blocks, in order."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
