"""The colours of all pictures: automata, masks, reports, notebooks. Imports nothing.

A notebook takes them over with `matplotlib.pyplot.rcParams.update(fsa_compile.draw.STYLE)`.
"""

from __future__ import annotations

from typing import Any

INK, LINE, FILL, CALL = "#1f2933", "#52606d", "#e8eef4", "#f6e3d3"
"""Of writing and borders, of arcs, of states, and of what is called inside of another frame."""
CHOSEN, ALLOWED, FORBIDDEN = "#2f6690", "#b9d0e2", "#b44d12"
"""What was taken, what else was allowed, what was not."""
ACCENT = FORBIDDEN
SERIES = (CHOSEN, FORBIDDEN, "#5b8c5a", "#8a6fa8", LINE)
"""One after the other for the lines and bars of a diagram."""
HEAT = "YlGnBu"
"""matplotlib's name of the colours of a share."""
STYLE: dict[str, Any] = {
    "axes.prop_cycle": f"cycler('color', {list(SERIES)})",
    "axes.edgecolor": LINE,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "image.cmap": HEAT,
    "legend.frameon": False,
}
"""matplotlib's parameters for diagrams of one's own beside these pictures."""
