"""What can be wrong with an input or a setting, as types with a sentence for a person."""

from __future__ import annotations

from collections.abc import Iterable


class RespoolError(Exception):
    """Base of every error that respool raises on purpose."""


class UnreadableRequest(RespoolError, ValueError):
    """The request is not something respool can read: malformed, or no chat request at all."""


class PassedThrough(RespoolError):
    """The request is fine, but its history is not respool's to change; the sentence says why."""


class PlainText(PassedThrough):
    """The request's input is one text: there is no history in it, and nothing wrong with it."""


class UnknownFormat(RespoolError, ValueError):
    """A wire format was named that respool does not know."""


class PolicyError(RespoolError, ValueError):
    """A setting is unknown or out of range; names the key, the value and what is allowed."""


class PlanMismatch(RespoolError, ValueError):
    """A plan was applied to a request it was not made for."""


class UnknownReference(RespoolError, KeyError):
    """No original is kept under this reference."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class BudgetError(RespoolError, ValueError):
    """All that may go has gone, and the request is still over a limit; says what is in the way."""

    def __init__(
        self, limit: str, allowed: int, reached: int, in_the_way: Iterable[tuple[str, int]] = ()
    ) -> None:
        self.limit = limit  # what is limited: "tokens", "bytes", "images" or "pixels"
        self.allowed = allowed
        self.reached = reached
        self.in_the_way = tuple(in_the_way)  # what must stay, and how much of the limit it takes
        super().__init__(limit, allowed, reached, self.in_the_way)

    def __str__(self) -> str:
        what = "pixels on a side of an image" if self.limit == "pixels" else self.limit
        said = (
            f"The request has {self.reached:,} {what} with all taken out that may go; "
            f"{self.allowed:,} are allowed."
        )
        named = ", ".join(f"{what} ({size:,})" for what, size in self.in_the_way)
        return f"{said} In the way: {named}." if named else said
