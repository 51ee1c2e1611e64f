"""What stands between forwarding and compaction: what is asked, and what may be answered."""

from __future__ import annotations

from typing import Final, Literal, Protocol

import msgspec

from ...pricing import Usage
from ...wire.base import FormatName
from .asgi import Headers

Operation = Literal["generate", "count"]
How = Literal["whole", "gone", "broke", "unreachable", "replaced"]


class Incoming(msgspec.Struct, frozen=True):
    """A request that may be compacted."""

    method: str
    path: str
    query: str
    headers: Headers  # all of them, respool's own and the client's key included: never to be kept
    format: FormatName
    operation: Operation  # `count`: the client asks how many tokens this would be
    model: str | None  # only where the path names it (Gemini)
    stream: bool | None  # only where the path says so (Gemini)
    body: bytes  # decoded, whatever its content-encoding was


class About(msgspec.Struct, omit_defaults=True):
    """What was done about a request, for the log and whoever counts. No text of it is in here."""

    sent: str = ""  # what went up: `projection`, `known-edits`, `original`, `untouched`, `observed`
    operation: Operation = "generate"
    model: str = ""
    conversation: str = ""  # a hash
    before: int = 0  # tokens, about
    saved: int = 0
    edits: int = 0  # that no request of the conversation had before
    why: str = ""  # a word for why it is no projection
    again: str = ""  # a word for why it was sent a second time
    ms: float = 0.0  # that respool took
    answered_by: str = ""  # the model that the answer names
    stop: str = ""  # how the answer ended, in the provider's word
    usage: Usage | None = None  # what the provider reported


class Outgoing(msgspec.Struct, frozen=True):
    """What goes to the provider in its place. Subclasses may carry what `again` wants to know."""

    body: bytes | None = None  # None: the bytes that came, compressed as they were
    headers: Headers = ()  # put behind those of the response
    judged: bool = False  # `again` is asked about an error although nothing was changed
    tap: Tap | None = None
    about: About | None = None  # filled in as the answer passes


class Answer(msgspec.Struct, frozen=True):
    """An error that the provider gave for a request that was changed."""

    status: int
    headers: Headers
    body: bytes  # decoded


class Tap(Protocol):
    """Listens to a response. It is told of a chunk after the client was given it."""

    def began(self, status: int, headers: Headers) -> None:
        """The response begins."""
        ...

    def seen(self, chunk: bytes) -> None:
        """The next bytes of the body, in the content-encoding that the headers name."""
        ...

    def ended(self, how: How) -> None:
        """It is over: `whole`; `gone` client; upstream `broke`; `unreachable`; `replaced`."""
        ...


class Handling(Protocol):
    """Looks at requests that may be compacted, and says what goes up in their place.

    Whatever it raises, the request goes up as it came.
    """

    reads: bool  # False: no body is held, decoded or shown to `outgoing`

    async def start(self) -> None:
        """The proxy starts: in the event loop that will serve."""
        ...

    async def stop(self) -> None:
        """The proxy has answered its last request."""
        ...

    async def outgoing(self, incoming: Incoming) -> Outgoing:
        """What goes up in place of this request."""
        ...

    async def again(
        self, incoming: Incoming, outgoing: Outgoing, answer: Answer
    ) -> Outgoing | None:
        """What to try after a 4xx for a changed or judged request; None: the client gets that."""
        ...


UNCHANGED: Final = Outgoing()


class PassThrough:
    """Looks at nothing and changes nothing."""

    reads = False

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    async def outgoing(self, incoming: Incoming) -> Outgoing:
        """The request as it came."""
        return UNCHANGED

    async def again(
        self, incoming: Incoming, outgoing: Outgoing, answer: Answer
    ) -> Outgoing | None:
        """The answer as it came."""
        return None
