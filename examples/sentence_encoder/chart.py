"""Error against bytes as one self-contained SVG, light or dark as the reader's screen is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

WIDTH, HEIGHT = 760, 480
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 72, 56  # of the plotted area, to the edges
LABEL_HEIGHT = 17

STYLE = """
    svg { color-scheme: light dark; font: 13px system-ui, sans-serif; }
    .paper { fill: #ffffff; } .ink { fill: #1f2328; } .faint { fill: #59636e; }
    .line { stroke: #d1d9e0; stroke-width: 1; } .dot { fill: #0969da; } .plain { fill: #8c6a00; }
    .lead { stroke: #8c959f; stroke-width: 1; fill: none; }
    .title { font-size: 16px; font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; } .ink { fill: #e6edf3; } .faint { fill: #9198a1; }
      .line { stroke: #30363d; } .dot { fill: #58a6ff; } .plain { fill: #e3b341; }
      .lead { stroke: #6e7681; }
    }
"""

Point = tuple[str, int, float]


def chart(points: Sequence[Point]) -> str:
    """The SVG of named sizes in bytes and errors above 0.

    Sizes are on a linear axis from 0, errors (1 - cosine) on a logarithmic one.
    """
    right = 10e6 * math.ceil(max(size for _, size, _ in points) / 10e6)
    floor = math.floor(math.log10(min(error for _, _, error in points)))
    ceiling = max(math.ceil(math.log10(max(error for _, _, error in points))), floor + 1)

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * size / right

    def y(error: float) -> float:
        part = (math.log10(error) - floor) / (ceiling - floor)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part

    body = [
        _text(LEFT, 28, "What a format costs in bytes and in accuracy", "ink title"),
        _text(LEFT, HEIGHT - 14, "size of the file, MB; further left is better", "faint"),
        _text(LEFT, 50, "mean of 1 - cosine to float32's embeddings; lower is better", "faint"),
    ]
    for power in range(floor, ceiling + 1):
        level = y(10.0**power)
        body.append(_line(LEFT, level, WIDTH - RIGHT, level, "line"))
        body.append(
            _text(LEFT - 10, level + 4, f"{10.0**power:.{max(-power, 0)}f}", "faint", anchor="end")
        )
    for megabytes in range(0, round(right / 1e6) + 1, 10):
        place = x(megabytes * 1e6)
        body.append(_line(place, HEIGHT - BOTTOM, place, HEIGHT - BOTTOM + 5, "line"))
        body.append(_text(place, HEIGHT - BOTTOM + 20, str(megabytes), "faint", anchor="middle"))
    placed = [(name, x(size), y(error)) for name, size, error in points]
    body += _labelled(placed)
    style = f"  <style>{STYLE}  </style>"
    paper = f'  <rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    told = "; ".join(f"{name}: {size / 1e6:.1f} MB, {error:.1e}" for name, size, error in points)
    title = f"  <title>Error against bytes of each format</title>\n  <desc>{escape(told)}</desc>"
    return "\n".join([start, title, style, paper, *body, "</svg>\n"])


def _labelled(placed: Iterable[tuple[str, float, float]]) -> list[str]:
    """A dot each, with its name to the right; names that would touch are moved apart downwards."""
    drawn: list[str] = []
    taken: list[tuple[float, float, float]] = []  # left, right, height of each name
    for name, x, y in sorted(placed, key=lambda one: (one[2], one[1])):
        width = 7.2 * len(name)
        at_right = x + 13 + width <= WIDTH - RIGHT
        left = x + 13 if at_right else x - 13 - width
        level = y
        beside = (height for start, end, height in taken if start < left + width and left < end)
        for height in sorted(beside):  # from the top down, so that each is met once
            if abs(height - level) < LABEL_HEIGHT:
                level = height + LABEL_HEIGHT
        taken.append((left, left + width, level))
        if level != y:
            drawn.append(_line(x, y, x + 10 if at_right else x - 10, level, "lead"))
        kind = "plain" if name.startswith("bfloat") else "dot"
        drawn.append(f'  <circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
        anchor = "start" if at_right else "end"
        drawn.append(_text(x + 13 if at_right else x - 13, level + 4, name, "ink", anchor=anchor))
    return drawn


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'  <line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'  <text class="{kind}" {place}>{escape(text)}</text>'
