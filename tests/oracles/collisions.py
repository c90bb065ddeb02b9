"""What lies on what in a matplotlib figure, by the boxes of its renderer."""

from __future__ import annotations

import itertools
from typing import Any


def collisions(figure: Any) -> list[str]:
    """Texts that lie on other texts, on states that are not theirs, or outside the figure once it is saved tightly."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    found = []
    for ax in figure.axes:
        texts = [t for t in [*ax.texts, ax.title, ax._left_title] if t.get_text().strip() and t.get_visible()]
        texts += [t for t in ax.get_xticklabels() if t.get_text().strip() and ax.xaxis.get_visible() and ax.axison]
        boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in texts if t.get_text() != "…"]
        for (one, a), (other, b) in itertools.combinations(boxes, 2):
            if overlap(a, b):
                found.append(f"{one!r} lies on {other!r}")
        circles = [p.get_window_extent(renderer) for p in ax.patches if type(p).__name__ == "Circle"]
        for one, a in boxes:
            for circle in circles:
                centre = (circle.x0 + circle.x1) / 2, (circle.y0 + circle.y1) / 2
                if a.contains(*centre) and overlap(a, circle) and abs((a.x0 + a.x1) / 2 - centre[0]) < 1:
                    continue  # the state's own number
                nearest = min(max(centre[0], a.x0), a.x1), min(max(centre[1], a.y0), a.y1)
                away = ((nearest[0] - centre[0]) ** 2 + (nearest[1] - centre[1]) ** 2) ** 0.5
                if away < circle.width / 2:
                    found.append(f"{one!r} lies on a state")
    return found


def overlap(a: Any, b: Any) -> bool:
    """Whether two boxes share more than a border of a pixel."""
    return min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
