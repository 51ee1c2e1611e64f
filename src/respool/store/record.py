"""What is recorded of a request, and what can be asked of the records."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..facts import Facts

Mode = Literal["compacted", "observed", "bypassed"]
SentAs = Literal["nothing", "projection", "original"]


class Usage(Struct, frozen=True, gc=False):
    """The tokens that the provider reported."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0


class EditMade(Struct, frozen=True, gc=False):
    """One edit that was in force."""

    reason: str
    place: str
    evidence: str = ""
    saved: int = 0
    ref: str = ""  # of what stood there before; empty where nothing is kept
    after: str = ""  # of what stands there now, if that is kept too


class FetchedAgain(Struct, frozen=True, gc=False):
    """A result that brings again what had been taken out of an earlier one."""

    tool: str
    target: str  # what was read or run again
    reason: str  # of the edit that had taken it out
    place: str
    earlier: str  # the place of the result that was cut
    tokens: int = 0


class Record(Struct, frozen=True, kw_only=True):
    """One request that went through: figures and reasons, and of the history names at most."""

    id: str
    time: float
    owner: str  # a salted hash of the API key, never the key
    conversation: str
    session: str = ""  # the client's own name for what this belongs to; it only groups
    format: str
    model: str = ""
    mode: Mode = "compacted"
    status: int = 0  # of the provider's answer; 0: none came
    tokens_before: int = 0
    tokens_after: int = 0
    saved: int = 0
    counted: bool = False  # tokens are exact; else they are estimated
    usage: Usage | None = None
    cost_before: float | None = None
    cost_after: float | None = None  # of one that was observed: what it would have been, about
    cost_uncached: float | None = None  # what this very request would have cost without a cache
    epochs: int = 0  # so far in this conversation
    prefix_break: str = ""  # why the provider's cache could not be read on; empty: it could
    fallback: str = ""  # why something else than the projection was sent; empty: it was sent
    again: str = ""  # why it was sent a second time, in a word; empty: it was not
    milliseconds: float = 0.0  # that respool took
    repairs: tuple[str, ...] = ()
    failures: dict[str, str] = {}
    refetched: tuple[FetchedAgain, ...] = ()  # what came again with this request
    loops: tuple[str, ...] = ()  # the circles that showed with this request, a sentence or two each
    edits: tuple[EditMade, ...] = ()
    edited: int = 0  # how many edits were in force; lists of requests come without the edits
    made: int = 0  # how many of them no request of the conversation had before
    terms: str = ""  # the model and the tools that it named, in few characters
    sent_as: SentAs = "projection"
    prefix: str = ""  # the hash of the history that it ended; empty: the provider did not take it
    parent: str = ""  # and of that which the request before it ended; empty: there was none
    # What it rests on and was not written down yet: it is, in one commit with this. None is read.
    facts: Facts = Facts()


class Latest(Struct, frozen=True, gc=False):
    """What a request must know of the one that it goes on from."""

    time: float = 0.0  # when it was sent; 0: not known
    terms: str = ""  # the model and the tools that it named
    sent_as: SentAs = "nothing"
    size: int = 0  # its tokens as it came, about
    epochs: int = 0  # how often edits had been put in force
    output: int = 0  # tokens of output that it asked for; 0: not known, and no record tells


class Lineage(Struct, frozen=True, gc=False):
    """Where a request stands in its conversation, by the hashes of histories."""

    id: str
    prefix: str  # that it ended; empty: the provider did not take it
    parent: str  # that it goes on from; empty: there is none, or it was not written down


class Sent(Struct, frozen=True):
    """What is recorded of the requests of a conversation that ended certain histories."""

    latest: tuple[tuple[str, Latest], ...] = ()  # the hash of that history, and the request
    edited: bool = False  # projections were sent in it that say less than the client holds
    edits: tuple[EditMade, ...] = ()  # edits that are recorded of it, since the record asked for
    last_id: int = 0  # the last record that had some


class Conversation(Struct, frozen=True, kw_only=True):
    """What is known of one conversation."""

    id: int
    name: str
    owner: str
    session: str
    started: float
    last: float
    requests: int
    tokens_before: int
    tokens_after: int
    saved: int
    cost_before: float
    cost_after: float
    model: str  # of its last request
    format: str
    observed: int = 0  # requests that were measured and not changed
    errors: int = 0
    fallbacks: int = 0
    prefix_breaks: int = 0
    refetched: int = 0
    loops: int = 0


class Total(Struct, frozen=True, kw_only=True, gc=False):
    """All requests of one stretch of time."""

    start: float
    requests: int
    tokens_before: int
    tokens_after: int
    saved: int
    input: int
    cache_read: int
    cache_write: int
    output: int
    cost_before: float
    cost_after: float
    errors: int  # answers with status 400 and above, or none
    fallbacks: int
    prefix_breaks: int
    cost_uncached: float = 0.0
    refetched: int = 0
    loops: int = 0
    observed: int = 0  # requests that were measured and not changed
    would_saved: int = 0  # tokens of `saved` that only would have been: they were observed
    would_cost: float = 0.0  # the same of cost_before - cost_after
    unpriced: int = 0  # requests that were answered, and whose cost is not known


class Reproduction(Struct, frozen=True, kw_only=True):
    """A request that the provider rejected once compacted: all that is needed to see it again."""

    time: float
    owner: str
    conversation: str
    format: str
    model: str = ""  # where the request itself does not name it
    status: int
    request: bytes  # as the client sent it; empty if it was too large to keep
    sent: bytes = b""  # its projection; empty if that was too large
    policy: str = ""  # its settings that are not the usual ones, as JSON
    facts: str = ""  # that held, as JSON
    error: str = ""  # what the provider said
    version: str = ""  # of respool


class Forgotten(Struct, frozen=True):
    """What `forget` deleted."""

    conversations: int
    originals: int
    requests: int
    erased: bool  # its bytes are out of the file; else a reader still holds on to the old ones
