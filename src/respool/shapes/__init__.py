"""Shapes of texts, by kind of content: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..markers import has_gaps
from .content_kind import ShapeKind, can_be, classify
from .decoration import split_frame
from .diff import shape_diff
from .excerpt import ShapedText, line_count
from .outline import shape_code, shape_page
from .run_output import shape_edit, shape_ends, shape_log, shape_test_output
from .search_results import shape_hits, shape_listing
from .structured_data import shape_json, shape_table

__all__ = ["SHAPES", "ShapeKind", "ShapedText", "classify", "can_be", "shape"]

SHAPES: Final[Mapping[ShapeKind, Callable[[str, int], ShapedText | None]]] = {
    "code": shape_code,
    "listing": shape_listing,
    "hits": shape_hits,
    "log": shape_log,
    "test": shape_test_output,
    "diff": shape_diff,
    "json": shape_json,
    "table": shape_table,
    "page": shape_page,
    "edit": shape_edit,
    "other": shape_ends,
}


def shape(text: str, kind: ShapeKind, budget: int) -> ShapedText | None:
    """Cut a text to its shape within about `budget` characters; None if that saves nothing.

    The frame that an agent put around an output stays unchanged.
    """
    if has_gaps(text):
        return None
    frame = split_frame(text)
    around = len(frame.head) + len(frame.note)
    shaped = SHAPES[kind](frame.body, max(budget - around, budget // 2))
    if shaped is None and kind != "other":
        shaped = shape_ends(frame.body, max(budget - around, budget // 2))
    if shaped is None or len(shaped.text) >= len(frame.body):
        return None
    note = f"\n{frame.note}".removesuffix("\n")
    shaped_text = f"{frame.head}{shaped.text}{note}"
    all = {"lines": line_count(text, 0, len(text)), "chars": len(text)}.get(
        shaped.unit, shaped.total
    )
    return (
        ShapedText(shaped_text, shaped.removed, all, shaped.unit)
        if len(shaped_text) < len(text)
        else None
    )
