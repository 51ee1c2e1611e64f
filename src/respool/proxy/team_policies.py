"""Policies of teams: each team's settings over the server's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ..errors import RespoolError
from ..lru_map import LruMap
from ..policy import Policy
from ..store.teams import Team, team_policy

_MAX_POLICIES: Final = 256
_log = logging.getLogger(__name__)


class TeamPolicies:
    """LRU cache of teams' policies by their settings; threads may share it."""

    def __init__(self, base: Policy, adapt: Callable[[Policy], Policy] | None = None) -> None:
        self._base = base
        self._adapt = adapt
        self._known = LruMap[tuple[str, bool], Policy](_MAX_POLICIES)

    def of(self, team: Team, *, is_text: bool = False) -> Policy:
        """The policy of a team; the server's if this version cannot read the team's settings."""
        return self._known.get_or_make(
            (team.settings, is_text), lambda: self._resolve(team, is_text=is_text)
        )

    def _resolve(self, team: Team, *, is_text: bool) -> Policy:
        try:
            policy = team_policy(team, self._base)
        except RespoolError as error:  # another version of respool has written them
            _log.warning("%s. The server's settings are used for this team.", error)
            policy = self._base
        else:
            policy = policy if self._adapt is None else self._adapt(policy)
        return policy.replace(rendering="text") if is_text else policy
