"""What can be wrong with an input or a setting, as types with a sentence for a person."""


class ClewError(Exception):
    """Base of every error that clew raises on purpose."""


class UnreadableRequest(ClewError, ValueError):
    """The request is not something clew can read: malformed, or no chat request at all."""


class PassedThrough(ClewError):
    """The request is fine, but its history is not clew's to change; the sentence says why."""


class PlainText(PassedThrough):
    """The request's input is one text: there is no history in it, and nothing wrong with it."""


class UnknownFormat(ClewError, ValueError):
    """A wire format was named that clew does not know."""


class PolicyError(ClewError, ValueError):
    """A setting is unknown or out of range; names the key, the value and what is allowed."""


class PlanMismatch(ClewError, ValueError):
    """A plan was applied to a request it was not made for."""


class UnknownReference(ClewError, KeyError):
    """No original is kept under this reference."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""
