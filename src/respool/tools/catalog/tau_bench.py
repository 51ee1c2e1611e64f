"""tau-bench's airline: records that are looked up and changed, no files."""

from __future__ import annotations

from ..declaration import Arguments
from .row import Rows, rows, talks

_ID = "reservation_id"
_SEARCHES = "search_direct_flight search_onestop_flight"
_CHANGES = (
    "update_reservation_flights update_reservation_baggages update_reservation_passengers "
    "cancel_reservation"
)


def _flight(arguments: Arguments) -> str | None:
    """A flight goes by where it leaves, where it lands, and when."""
    return " ".join(str(arguments.get(name)) for name in ("origin", "destination", "date"))


ROWS: Rows = (
    *rows("get_reservation_details", _ID, kind="read", target=_ID, content="json"),
    *rows("get_user_details", "user_id", kind="read", target="user_id", content="json"),
    *rows(_SEARCHES, "origin", kind="search", target=_flight, content="json"),
    *talks("list_all_airports", content="json"),
    *rows(_CHANGES, _ID, kind="write", barrier=True, target=_ID),
    *rows("book_reservation", "user_id", kind="write", barrier=True, target="user_id"),
    *rows("send_certificate", "user_id", kind="write", barrier=True, target="user_id"),
    *talks("transfer_to_human_agents", "summary"),
    *talks("calculate", "expression", target="expression"),
)
