"""Sessions under the presets of the sources, in every wire format."""

from __future__ import annotations

from typing import Any

import respool
from respool import Policy
from respool.engine import Compaction
from tests.support.coding_sessions import bash
from tests.support.formats import request

A, B = "/w/loom.py", "/w/heddle.py"
LONG = "pytest " + " ".join(f"tests/unit/weaving/test_part_{n}.py" for n in range(12))
TEXT = "\n".join(f"line {number} of what the tool printed" for number in range(20))  # ~ 600


def compact(preset: str, format: str, *steps: Any, **changes: Any) -> Compaction[Any]:
    """A session under a preset, as the provider accepts it."""
    return compact_body(preset, format, request(format, "Mend the loom.", *steps), **changes)


def compact_body(preset: str, format: str, body: Any, **changes: Any) -> Compaction[Any]:
    policy = Policy.preset(preset).replace(**changes)
    out = respool.compact(body, format=format, policy=policy, memo=None)
    assert [p for p in respool.check(out.request, format=format) if p.severity == "error"] == []
    assert out.report.failures == {}
    return out


def then(messages: int) -> list[Any]:
    """So many messages after what matters: calls with their results, and a word for an odd one."""
    calls = [[bash(f"echo {n}", f"{n}", f"f{n}")] for n in range(messages // 2)]
    return [*calls, *(["Go on."] if messages % 2 else [])]


def reasons(out: Compaction[Any]) -> list[str]:
    return [edit.reason for edit in out.report.edits]
