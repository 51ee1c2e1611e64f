"""Validation of generateContent requests by the models of the `google-genai` SDK.

Judged: `contents`, `systemInstruction`, `tools` and `generationConfig`, key by key: the SDK's
models refuse keys they do not know. Not judged, because the models do not know it: the number of
responses to calls, roles, signatures, or that a part should be one thing only. Parts with a key
named `future_…` are skipped. The SDK warns of an unknown enum value and takes it; here it is
refused.
"""

from __future__ import annotations

import warnings
from typing import Any

from google.genai import types

from tests.judges.future import without_future
from tests.judges.strict_types import Judgement

_CONTENTS = Judgement(list[types.Content])
_FIELDS = {
    "systemInstruction": Judgement(types.Content),
    "tools": Judgement(list[types.Tool]),
    "generationConfig": Judgement(types.GenerationConfig),
}


def judge(request: dict[str, Any]) -> list[str]:
    """Complaints of the SDK's models about a request."""
    body = without_future(request)
    found = _told(_CONTENTS, body.get("contents"), "contents")
    for field, judgement in _FIELDS.items():
        if field in body:
            found += _told(judgement, body[field], field)
    return found


def judge_history(history: list[Any]) -> list[str]:
    """Complaints about a bare list of contents."""
    return _told(_CONTENTS, without_future(history), "contents")


def _told(judgement: Judgement, value: Any, place: str) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return judgement.of_json(value, place)
        except (Warning, AttributeError) as refusal:  # an enum's value, unknown or no word at all
            return [f"{place}: {refusal}"]
