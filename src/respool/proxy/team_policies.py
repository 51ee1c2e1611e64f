"""Policies of teams: each team's settings over the server's."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final

from ..errors import RespoolError
from ..policy import Policy
from ..store.teams import Team, team_policy

_MAX_POLICIES: Final = 256
_log = logging.getLogger(__name__)


class TeamPolicies:
    """LRU cache of teams' policies by their settings; threads may share it."""

    def __init__(self, base: Policy, adapt: Callable[[Policy], Policy] | None = None) -> None:
        self._base = base
        self._adapt = adapt
        self._known: OrderedDict[tuple[str, bool], Policy] = OrderedDict()
        self._lock = Lock()

    def of(self, team: Team, *, is_text: bool = False) -> Policy:
        """The policy of a team; the server's if this version cannot read the team's settings."""
        key = team.settings, is_text
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
        found = self._resolved(team)
        found = found.replace(rendering="text") if is_text else found
        with self._lock:
            self._known[key] = found
            if len(self._known) > _MAX_POLICIES:
                self._known.popitem(last=False)
        return found

    def _resolved(self, team: Team) -> Policy:
        try:
            policy = team_policy(team, self._base)
        except RespoolError as error:  # another version of respool has written them
            _log.warning("%s. The server's settings are used for this team.", error)
            return self._base
        return policy if self._adapt is None else self._adapt(policy)
