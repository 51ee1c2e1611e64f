"""What is asked for in a query, within limits; whatever is beyond them is refused in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

LARGEST: Final = 2**63 - 1  # what a row's number can be
_MOST_FIELDS: Final = 16
_LONGEST: Final = 200  # characters of a name

Query = Mapping[str, str]


class Unanswerable(Exception):
    """A question that cannot be answered: the status for it, and a sentence that says why."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        self.why = why
        super().__init__(status, why)


def query_of(raw: bytes) -> Query:
    """The fields of a query; of a repeated one the last."""
    try:
        return dict(parse_qsl(raw.decode("latin-1"), max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise Unanswerable(400, "There are too many fields in the query.") from None


def name(query: Query, key: str) -> str:
    """A name that has to be given."""
    given = query.get(key, "")
    if not 0 < len(given) <= _LONGEST:
        raise Unanswerable(400, f"{key} has to be given, in at most {_LONGEST} characters.")
    return given


def whole(query: Query, key: str, default: int, maximum: int) -> int:
    """A whole number from 0 to `most`."""
    given = query.get(key)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 20 and int(given) <= maximum):
        raise Unanswerable(400, f"{key} has to be a whole number from 0 to {maximum}.")
    return int(given)


def moment(query: Query, key: str) -> float | None:
    """A time in seconds since 1970; None where none is given."""
    given = query.get(key)
    if given is None:
        return None
    try:
        seconds = float(given) if len(given) <= 40 else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < 1e12:
        raise Unanswerable(400, f"{key} has to be a time in seconds since 1970.")
    return seconds
