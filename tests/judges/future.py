"""Removal of kinds of blocks, items and parts that no SDK knows yet."""

from __future__ import annotations

from typing import Any, cast

FUTURE = "future_"


def without_future(value: Any) -> Any:
    """The value without the list items of a kind that starts with `future_`.

    Such kinds must be carried along untouched, so strategies make them; the SDKs' types refuse
    every kind they do not know. Any other unknown kind stays, and is refused.
    """
    if isinstance(value, list):
        return [without_future(item) for item in cast(list[Any], value) if not _is_future(item)]
    if isinstance(value, dict):
        return {key: without_future(item) for key, item in cast(dict[str, Any], value).items()}
    return value


def _is_future(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    block = cast(dict[str, Any], item)
    return str(block.get("type")).startswith(FUTURE) or any(
        isinstance(key, str) and key.startswith(FUTURE) for key in block
    )
