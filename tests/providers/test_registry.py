"""A provider is one folder and one line in the registry: shown with a fifth one."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

import respool
from respool.errors import UnknownFormat
from respool.providers.registry import PROVIDERS, register, unregister
from respool.wire.base import FORMATS
from tests.providers.toy_provider import TOY

PAGE = "\n".join(
    f"{number:>4} def function_{number}(): return {number * 7}" for number in range(300)
)


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    register(TOY)
    yield
    unregister("toy")


def run(key: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"by": "bot", "say": "Next.", "run": [{"key": key, "tool": tool, "with": arguments}]}


def gave(key: str, text: str) -> dict[str, Any]:
    return {"by": "tool", "key": key, "gave": text}


def session(count: int = 12) -> dict[str, Any]:
    """A file read over and over, and then once more."""
    turns: list[dict[str, Any]] = [{"by": "user", "say": "Find the bug."}]
    for number in range(count):
        turns += [run(f"k{number}", "read_file", path="a.py"), gave(f"k{number}", PAGE)]
    return {"model": "toy-1", "tools": [{"name": "read_file"}], "turns": turns}


def test_every_provider_is_whole() -> None:
    assert list(PROVIDERS) == list(FORMATS)
    for name, provider in PROVIDERS.items():
        assert provider.name == provider.codec.name == name
        assert provider.format.history_field == provider.codec.history_field


@pytest.mark.parametrize("named", ["toy", None])
@pytest.mark.parametrize("kind", ["object", "text", "bytes", "list"])
def test_a_history_is_compacted(kind: str, named: str | None) -> None:
    request = session()
    given: Any = {
        "object": request,
        "text": json.dumps(request),
        "bytes": json.dumps(request).encode(),
        "list": request["turns"],
    }[kind]
    before = copy.deepcopy(given)
    out = respool.compact(given, format=named, policy=respool.Policy(budget=9_000))
    assert given == before
    assert type(out.request) is type(given)
    assert out.report.format == "toy"
    assert out.report.tokens_saved > 20_000
    after: Any = json.loads(out.request) if kind in ("text", "bytes") else out.request
    turns = after if kind == "list" else after["turns"]
    assert turns[0] == request["turns"][0]
    assert respool.check(after, format=named) == []
    for ref, original in out.originals.items():
        assert respool.expand(ref, out) == original


def test_nothing_to_do_leaves_the_bytes() -> None:
    body = (
        b'{ "model": "toy-1",\n "turns": [ {"by":"user", "say":"hi"} , {"by": "bot","say":"ho"} ] }'
    )
    assert respool.compact(body).request == body


def test_a_plan_is_applied() -> None:
    request, policy = session(), respool.Policy(budget=9_000)
    plan = respool.plan(request, policy=policy)
    assert plan.format == "toy"
    assert respool.apply(request, plan).request == respool.compact(request, policy=policy).request


def broken() -> dict[str, Any]:
    request = session(2)
    del request["turns"][2]
    request["turns"][2:2] = [{"by": "user", "say": "Go on."}, gave("lost", "nobody asked")]
    return request


def test_a_broken_history_is_checked_and_repaired() -> None:
    assert [problem.code for problem in respool.check(broken())] == ["T1", "T2"]
    out = respool.repair(broken())
    assert [repair.code for repair in out.report.repairs] == ["T1", "T2"]
    assert respool.check(out.request) == []
    assert out.request["turns"][2]["gave"] == "[no result was recorded for this call]"


def test_a_history_is_rendered_as_text() -> None:
    out = respool.compact(session(2), policy=respool.Policy(rendering="text"))
    assert {turn["by"] for turn in out.request["turns"]} == {"user", "bot"}
    assert not any("run" in turn for turn in out.request["turns"])
    assert "read_file returned" in out.request["turns"][-1]["say"]
    bare = respool.compact(session(2), policy=respool.Policy(rendering="text-only"))
    assert "tools" in out.request
    assert "tools" not in bare.request


def test_requests_that_extend_one_another_stay_stable() -> None:
    policy, memo = respool.Policy(), respool.api.Memo()
    sent: list[Any] = []
    for count in range(2, 12):
        request = session(count)
        sent.append(respool.compact(request, policy=policy, memo=memo).request)
        assert sent[-1] == respool.compact(request, policy=policy, memo=None).request


def test_a_name_that_is_not_registered_is_refused() -> None:
    with pytest.raises(UnknownFormat, match="gemini, toy"):
        respool.compact(session(), format="doll")
