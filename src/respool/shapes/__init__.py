"""Texts cut to their shapes, by kind of content: pure functions, one file each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..marker import has_gaps
from .code import shape_code
from .cutting import line_count
from .diff import shape_diff
from .edit import shape_edit
from .ends import shape_ends
from .frame import framed
from .hits import shape_hits
from .json_value import shape_json
from .kinds import Shape, kind_of, may_be
from .listing import shape_listing
from .log import shape_log
from .page import shape_page
from .shaped import Shaped
from .table import shape_table
from .test_output import shape_test_output

__all__ = ["SHAPES", "Shape", "Shaped", "kind_of", "may_be", "shape"]

SHAPES: Final[Mapping[Shape, Callable[[str, int], Shaped | None]]] = {
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


def shape(text: str, kind: Shape, budget: int) -> Shaped | None:
    """A text cut to its shape in about so many characters; None when that would not make it less.

    What an agent put around an output stays as it is.
    """
    if has_gaps(text):
        return None
    frame = framed(text)
    around = len(frame.head) + len(frame.note)
    shaped = SHAPES[kind](frame.body, max(budget - around, budget // 2))
    if shaped is None and kind != "other":
        shaped = shape_ends(frame.body, max(budget - around, budget // 2))
    if shaped is None or len(shaped.text) >= len(frame.body):
        return None
    note = f"\n{frame.note}".removesuffix("\n")
    said = f"{frame.head}{shaped.text}{note}"
    all = {"lines": line_count(text, 0, len(text)), "chars": len(text)}.get(shaped.unit, shaped.total)
    return Shaped(said, shaped.removed, all, shaped.unit) if len(said) < len(text) else None
