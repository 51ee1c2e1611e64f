"""Lines with fewer points and strings with fewer characters, as a page can hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..result import Point

Object = object
Drawn = tuple[int, int, int, int]  # request, tokens, of them from the cache, cost


def thinned(points: Sequence[Point], max_points: int) -> list[Drawn]:
    """At most so many points of a line; the highest and the lowest of every stretch stay."""
    if len(points) <= max_points:
        return [_drawn(points, at) for at in range(len(points))]
    stretches = max_points // 2 - 1
    kept = {0, len(points) - 1}
    for stretch in range(stretches):
        start = stretch * len(points) // stretches
        end = (stretch + 1) * len(points) // stretches
        by_height = sorted(range(start, end), key=lambda at: points[at].tokens)
        kept |= {by_height[0], by_height[-1]}
    return [_drawn(points, at) for at in sorted(kept)]


def _drawn(points: Sequence[Point], at: int) -> Drawn:
    point = points[at]
    return at, point.tokens, point.read, round(point.cost)


def clipped(value: Object, max_chars: int) -> Object:
    """A JSON value with no string longer than so many characters, and none that UTF-8 lacks."""
    if isinstance(value, str):
        return _text(value, max_chars)
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        fields = cast("dict[str, Object]", value)
        return {_text(key, max_chars): clipped(item, max_chars) for key, item in fields.items()}
    if isinstance(value, list | tuple):
        return [clipped(item, max_chars) for item in cast("Sequence[Object]", value)]
    return value


def _text(text: str, max_chars: int) -> str:
    short = text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
    return short.encode("utf-8", "replace").decode("utf-8")
