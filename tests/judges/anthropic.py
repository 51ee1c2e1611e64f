"""Validation of Anthropic Messages requests by the types of the `anthropic` SDK.

Judged: the whole body (`MessageCreateParams` of the beta API), every block of every message, and
what is inside tool results, sources and citations. Not judged, because the types do not know it:
pairing, order, roles that follow each other, blank texts, the number of cache breakpoints.
Blocks of a kind named `future_…` are skipped.
"""

from __future__ import annotations

from typing import Any

from anthropic.types.beta import BetaMessageParam
from anthropic.types.beta.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)

from tests.judges.future import without_future
from tests.judges.strict_types import Judgement

_MESSAGES = Judgement(list[BetaMessageParam])
_ONCE = Judgement(MessageCreateParamsNonStreaming)
_STREAMED = Judgement(MessageCreateParamsStreaming)


def judge(request: dict[str, Any]) -> list[str]:
    """Complaints of the SDK's types about a request."""
    judgement = _STREAMED if request.get("stream") is True else _ONCE
    return judgement.of(without_future(request), "request")


def judge_history(history: list[Any]) -> list[str]:
    """Complaints about a bare list of messages."""
    return _MESSAGES.of(without_future(history), "messages")
