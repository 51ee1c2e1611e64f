"""One request on its way: `ParsedRequest → Decision → InFlight → Record`, and its lifecycle.

The forwarder parses a request and calls the middleware at each step of its life. The middleware
decides what is sent upstream in its place, and records how it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol

import msgspec

from ..edits import Edit
from ..engine import FoldedRequest, FormatName, Repair, RepeatCell
from ..facts import BreakpointMode, Facts
from ..store import Arm, RefetchedResult, RejectedRequest, SentRequest
from ..store.teams import Team
from .asgi import Headers
from .breaker import Permit
from .log import CompactionSummary, Outcome
from .router import Operation
from .usage import ResponseInfo, ResponseReader, ThreadedReader

Kind = Literal["projection", "known-edits", "original", "untouched"]
Retry = Literal["overflow", "invalid"]
NO_FACTS: Final = Facts()
# The codes of the reasons why no projection is sent.
FALLBACK_REASONS: Final = (
    "late",
    "failed",
    "not-kept",
    "breaker-open",
    "refused",
    "left-alone",
    "bypassed",
    "signed",
    "paused",
    "pinned",
    "unreadable",
    "passed-through",
    "sent-unchanged-before",
    "over-quota",
)
# Errors by which gateways and model servers may refuse what a projection holds.
UNCLEAR_STATUSES: Final = frozenset({403, 404, 406, 415, 451, 500, 501})


class ParsedRequest(msgspec.Struct, frozen=True):
    """A request that may be compacted."""

    method: str
    path: str
    query: str
    headers: Headers  # all of them, with the client's key: never to be stored
    format: FormatName
    operation: Operation  # `count`: the client asks for the number of tokens
    model: str | None  # only if the path names it (Gemini, Bedrock, Vertex, Azure)
    stream: bool | None  # only if the path says so (Gemini, Bedrock, Vertex)
    body: bytes  # without its content-encoding
    team: Team | None = None  # whose token the request brought
    is_over_quota: bool = False  # of its team
    owner: str = ""  # a salted hash of the API key, or the team
    account: str = ""  # a salted hash of API key and team; empty: the owner
    time: float = 0.0  # when it came, in seconds since 1970
    session: str | None = None  # the client's own session id, hashed
    arm: Arm = ""  # of a holdout; empty: it takes no part
    unit: str = ""  # that was drawn for it
    number: int = 0  # of the request in this process

    @property
    def is_count(self) -> bool:
        """True if the client only asks for the number of tokens."""
        return self.operation == "count"


class RequestIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation of a request, its place in that, and its terms."""

    conversation: str = ""
    session: str = ""
    prefix: str = ""  # the hash of its history
    parent: str = ""  # the hash of its parent request's history
    parent_request: SentRequest = SentRequest()
    model: str = ""
    agent: str = ""
    project: str = ""  # the folder that the agent works in
    prompt: str = ""  # the first one of the conversation
    terms: str = ""  # the model and the tools that it names
    output: int = 0  # tokens that it asks for; 0: not known


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """Findings about a history that are only recorded."""

    repairs: tuple[Repair, ...] = ()
    failures: Mapping[str, str] = {}  # by pass
    refetched: tuple[RefetchedResult, ...] = ()  # results that bring again what was taken out
    loops: tuple[str, ...] = ()  # loops that the latest results show, a sentence or two each
    repeats: tuple[RepeatCell, ...] = ()  # results that are sent, and those requested again


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on a request: the body that is sent upstream, and all that is recorded."""

    kind: Kind = "untouched"
    body: bytes | None = None  # None: the bytes that came
    reason: str = ""  # why it is no projection
    identity: RequestIdentity = RequestIdentity()
    # what it depends on
    facts: Facts = NO_FACTS
    breakpoints: BreakpointMode | None = None  # the client's cache breakpoints, if known
    moment: str = ""  # a free moment: `cold` or `changed`
    # what was done
    tokens_before: int = 0  # estimated
    tokens_after: int = 0
    client_cached: int = 0  # tokens that the client may have cached itself
    epochs: int = 0
    results: int = 0  # tool results in the history
    waiting: tuple[int, int] = (0, 0)  # offers that wait until they pay, and their tokens
    pending: FoldedRequest | None = None  # an evaluation is due that the next request needs
    edits: tuple[Edit, ...] = ()
    edition: int = 0  # the same number for the very same edits; 0: not known
    dropped: Mapping[str, str] = {}  # by place: references of what new edits removed
    calls: Mapping[str, tuple[str, str]] = {}  # by place: tool and target that new edits changed
    head: int = 0  # tokens of system prompt and tool definitions
    tools: Mapping[str, int] = {}  # tokens of definitions that are new in the conversation
    called: tuple[str, ...] = ()  # tools that are called for the first time in the conversation
    findings: Findings = Findings()


class InFlight(msgspec.Struct, kw_only=True):
    """A request that was decided on, from the moment it is sent until it is recorded."""

    request: ParsedRequest
    decision: Decision = Decision()
    body: bytes | None = None  # sent upstream; None: the bytes that came, encoded as they were
    response_headers: Headers = ()  # added to those of the response
    is_wrapped: bool = False  # the request came inside another (Gemini's countTokens)
    is_retriable: bool = (
        False  # the middleware is asked about an error although nothing was changed
    )
    summary: CompactionSummary | None = None  # for the log
    milliseconds: float = 0.0  # that the decision took
    permit: Permit | None = None  # of the circuit breaker
    retry: Retry | Literal[""] = ""  # the error after which it is sent again
    retries: frozenset[Retry] = frozenset()  # all such errors
    rejected: RejectedRequest | None = None  # the refused projection that this is the original of
    rejected_permit: Permit | None = None  # and its permit
    is_observed: bool = False  # it was sent as it came, despite the decision
    original: Decision | None = None  # of an observed request that compaction may go on from
    status: int = 0  # of the response; 0: there was none
    error: str = ""  # why there was none, or why it was cut off
    reader: ResponseReader | ThreadedReader | None = None  # of the response
    response: ResponseInfo = ResponseInfo()  # once it has ended
    new_edits: tuple[Edit, ...] = ()  # that no earlier request of the conversation had

    def take_pending(self) -> FoldedRequest | None:
        """The request whose evaluation is due, once."""
        pending = self.decision.pending
        if pending is not None:
            self.decision = msgspec.structs.replace(self.decision, pending=None)
        return pending

    def release(self) -> None:
        """Drop the bodies: the response may take minutes, and nobody needs them any more."""
        if not self.request.headers and self.decision.body is None:
            return  # it was done
        self.body = None
        self.request = msgspec.structs.replace(self.request, body=b"", headers=())
        self.decision = msgspec.structs.replace(self.decision, body=None, facts=NO_FACTS)
        self.original = None


class ErrorResponse(msgspec.Struct, frozen=True):
    """An error response to a request that was changed or is retriable."""

    status: int
    headers: Headers
    body: bytes  # without its content-encoding


class Middleware(Protocol):
    """The lifecycle of requests that may be compacted.

    If a method raises, the request is sent as it came, or goes on without the middleware.
    """

    reads_bodies: bool  # False: no body is held or decoded, and no method is called

    async def start(self) -> None:
        """The proxy starts, in the event loop that will serve."""
        ...

    async def stop(self) -> None:
        """The proxy has answered its last request."""
        ...

    async def request_parsed(self, request: ParsedRequest) -> InFlight:
        """Decide what is sent upstream."""
        ...

    async def error_received(self, flight: InFlight, error: ErrorResponse) -> InFlight | None:
        """Decide what to send after an error; None: the client receives the error."""
        ...

    def response_started(self, flight: InFlight, status: int, headers: Headers) -> None:
        """The client has received the head of the response."""
        ...

    def chunk_sent(self, flight: InFlight, chunk: bytes) -> None:
        """The client has received the next bytes, in the content-encoding of the response."""
        ...

    def ended(self, flight: InFlight, outcome: Outcome) -> None:
        """The attempt is over; called once."""
        ...


class PassThrough:
    """Middleware that reads and changes nothing."""

    reads_bodies = False

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    async def request_parsed(self, request: ParsedRequest) -> InFlight:
        """Send the request as it came."""
        return InFlight(request=request)

    async def error_received(self, flight: InFlight, error: ErrorResponse) -> InFlight | None:
        """Forward the error as it came."""
        return None

    def response_started(self, flight: InFlight, status: int, headers: Headers) -> None:
        """Nothing to record."""

    def chunk_sent(self, flight: InFlight, chunk: bytes) -> None:
        """Nothing to record."""

    def ended(self, flight: InFlight, outcome: Outcome) -> None:
        """Nothing to record."""
