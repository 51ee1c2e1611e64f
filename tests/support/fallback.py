"""The two fallbacks of the proxy, through `engine.Session` as the proxy calls them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from respool.compaction.memo import Memo
from respool.engine import Compaction, FoldedRequest, Session, build_compaction
from respool.facts import Facts
from respool.policy import Policy


@dataclass(frozen=True)
class Fallback:
    """A compaction sent in place of the usual one, and the facts that later requests need."""

    compaction: Compaction[Any]
    facts: Facts
    folded: FoldedRequest


def apply_known_edits(
    request: Any,
    *,
    format: str | None,
    policy: Policy,
    facts: Facts,
    memo: Memo,
    model: str | None = None,
    output: int = 0,
) -> Fallback | None:
    """The request with the edits of its longest known prefix and no others."""
    session = Session(memo)
    found = session.fold_known(session.parse(request, format, model), policy, facts, output=output)
    if found is None:
        return None
    folded, skipped = found
    return Fallback(build_compaction(folded, request), skipped, folded)


def restore_original(
    request: Any, *, format: str | None = None, sent: Facts | None = None, model: str | None = None
) -> Fallback:
    """The request without the reasoning that was signed for a projection of it."""
    session = Session()
    history = session.parse(request, format, model)
    until = frozenset({history.prefix}) if sent is None else sent.left_alone
    folded = session.fold_original(history, until)
    return Fallback(build_compaction(folded, request), Facts(left_alone=until), folded)
