"""A projection that a provider refused, written down so that it can be made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import json

from ...engine import build_compaction, fold_request
from ...facts import Facts
from ...plugins import pass_name
from ...policy import NAMES, Policy
from ...store import RejectedRequest
from ...tools import Tool, Tools
from ..forwarding.handling import Answer
from ..installed import installed
from .decision import Decision
from .reading import Asked

_LONGEST = 4_096  # bytes of what the provider said


def case_of(asked: Asked, refused: Decision, answer: Answer, policy: Policy) -> RejectedRequest:
    """All that the projection was made of, and what was said of it."""
    return RejectedRequest(
        time=asked.time,
        owner=asked.owner,
        conversation=refused.conversation,
        format=asked.format,
        model=asked.model or "",
        status=answer.status,
        request=asked.body,
        sent=refused.body or b"",
        policy=json.encode(settings_in(policy)).decode(),
        facts=json.encode(refused.facts.to_dict()).decode(),
        error=answer.body[:_LONGEST].decode("utf-8", "replace"),
        version=installed(),
    )


def made_again(case: RejectedRequest) -> bytes:
    """The projection of a case, made anew; users' own passes must be installed."""
    policy = policy_of(json.decode(case.policy))
    facts = Facts.from_dict(json.decode(case.facts))
    folded = fold_request(
        case.request,
        format=case.format,
        policy=policy,
        facts=facts,
        memo=None,
        model=case.model or None,
    )
    return build_compaction(folded, case.request).request


def settings_in(policy: Policy) -> dict[str, Any]:
    """The settings that are not the usual ones, as JSON can hold them."""
    usual = Policy()
    given = {name: getattr(policy, name) for name in NAMES}
    return {name: _plain(value) for name, value in given.items() if value != getattr(usual, name)}


def policy_of(settings: Mapping[str, Any]) -> Policy:
    """The policy with these settings."""
    declared = cast("list[dict[str, Any]]", settings.get("tools", []))
    return Policy().replace(**{**settings, "tools": Tools(Tool(**one) for one in declared)})


def _plain(value: object) -> object:
    if isinstance(value, Tools):
        return [{key: _plain(told) for key, told in one.declared().items()} for one in value]
    if isinstance(value, tuple):
        return [_plain(one) for one in cast("tuple[object, ...]", value)]
    return pass_name(value) if callable(value) else value
