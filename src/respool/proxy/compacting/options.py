"""How the proxy compacts: the policy, and what it may cost a request."""

from __future__ import annotations

from msgspec import Struct

from ...policy import Policy
from ...wire.base import FormatName


class Options(Struct, frozen=True, kw_only=True):
    """What a user may say about compaction on the way up."""

    policy: Policy = Policy()
    observe: bool = False  # measure, and change nothing
    # Seconds for one request. A conversation that was never seen takes about one a megabyte, once;
    # all later requests some milliseconds. Longer than this an agent need not wait.
    deadline: float = 3.0
    threads: int = 4  # that compact side by side
    texts: tuple[FormatName, ...] = ()  # whose upstreams refuse calls: they are told in words
    shared: bool = False  # other processes serve the same conversations
