"""What goes out when a compaction is late or fails: the edits in force, or the request as it came.

Once projections were sent, what the client holds is no longer what the model's reasoning was signed
for. So a request that goes out as it came leaves that reasoning behind.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from .codecs.detect import detect
from .codecs.reading import read_body
from .engine import Compaction, Folded, compacted, fold_known, fold_request, prefix_of
from .facts import Facts
from .folding.memo import Memo
from .policy import Policy

_Request = TypeVar("_Request")
# Nothing is decided and nothing is mended: what the client wrote is what goes out.
_AS_IT_CAME = Policy(passes=(), repair=False)


class Fallback(Struct, Generic[_Request], frozen=True):
    """What goes out instead, and the facts that make every later request agree with it."""

    compaction: Compaction[_Request]
    facts: Facts
    folded: Folded


def with_known_edits(
    request: _Request, *, format: str | None, policy: Policy, facts: Facts, memo: Memo,
    model: str | None = None, output: int = 0,
) -> Fallback[_Request] | None:  # fmt: skip
    """The request with the edits of its longest known prefix and no others; None: none is known.

    The facts say which boundaries were skipped, so that no edit is made at them later either.
    """
    found = fold_known(request, format, policy, facts, memo, model, output)
    if found is None:
        return None
    folded, skipped = found
    return Fallback(compacted(folded, request), skipped, folded)


def as_it_came(
    request: _Request, *, format: str | None = None, sent: Facts | None = None,
    model: str | None = None,
) -> Fallback[_Request]:  # fmt: skip
    """The request without the reasoning that was signed for what was sent in its place.

    `sent.left_alone` are the prefixes up to which projections were sent; without them, all of it.
    """
    body = read_body(request)
    here = prefix_of(body, detect(body, format), None)
    until = frozenset({here}) if sent is None else sent.left_alone
    facts = Facts(changed=until)
    folded = fold_request(request, format, _AS_IT_CAME, facts, None, model=model)
    return Fallback(compacted(folded, request), Facts(left_alone=until), folded)
