"""The branches of a conversation: which of its requests go on from one another.

Sessions that open with the same words are one conversation, and part with the model's first words.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..store import Lineage

_FIRST = 1


def branches(requests: Iterable[Lineage]) -> dict[str, int]:
    """The branch of each request, numbered in the order in which they began.

    One that goes on from where another went on before begins a branch. One whose parent is not
    known, for the client changed its history or a record was lost, stays where the one before was.
    """
    found: dict[str, int] = {}
    ended: dict[str, int] = {}  # by history: the branch with the request that ended it
    unfollowed: dict[str, int] = {}  # the same of those from which none went on
    count = last = _FIRST
    for one in requests:
        at = ended.get(one.prefix) or unfollowed.get(one.parent)
        if at is None and one.prefix and one.parent in ended:
            count += 1
            at = count
        found[one.id] = last = at or ended.get(one.parent, last)
        if one.prefix and one.prefix not in ended:
            unfollowed.pop(one.parent, None)
            ended[one.prefix] = unfollowed[one.prefix] = last
    return found
