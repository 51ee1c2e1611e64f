"""Bodies of Bedrock and Vertex: the same projection as of the same request to Anthropic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

import respool
from respool.providers.anthropic.request_rules import media_limits
from tests.effort import examples
from tests.strategies import broken, requests

EAGER = respool.Policy(
    eager=True, reevaluate_tokens=1, reevaluate_ratio=0.0, cap_chars=60, keep_exchanges=0
)
CLOUDS = {
    "bedrock-2023-05-31": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "vertex-2023-10-16": "claude-sonnet-4-5@20250929",
}
clouds = pytest.mark.parametrize(("version", "model"), CLOUDS.items())


def in_cloud(request: dict[str, Any], version: str) -> dict[str, Any]:
    """The same request with its model in the path."""
    rest = {name: value for name, value in request.items() if name != "model"}
    return {**rest, "anthropic_version": version}


@clouds
def test_a_body_without_its_model_is_projected_as_one_with_it(version: str, model: str) -> None:
    @settings(max_examples=examples(40), deadline=None)
    @given(requests("anthropic") | broken("anthropic"))
    def holds(request: dict[str, Any]) -> None:
        request["model"] = "claude-sonnet-4-5-20250929"
        wrapped = in_cloud(request, version)
        expected = respool.compact(request, format="anthropic", policy=EAGER, memo=None)
        for form in (wrapped, json.dumps(wrapped)):
            found = respool.compact(form, policy=EAGER, memo=None, model=model)
            body = json.loads(found.request) if isinstance(found.request, str) else found.request
            assert body == in_cloud(expected.request, version)
            assert [edit.reason for edit in found.report.edits] == [
                edit.reason for edit in expected.report.edits
            ]
        assert respool.check(wrapped, model=model) == respool.check(request, format="anthropic")

    holds()


@clouds
def test_a_body_is_compacted_also_if_nobody_names_its_model(version: str, model: str) -> None:
    exchange = [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "run", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "line\n" * 900}],
        },
    ]
    ends = [{"role": "assistant", "content": "done"}, {"role": "user", "content": "go on"}]
    history = [{"role": "user", "content": "go"}, *exchange, *ends]
    wrapped = {"anthropic_version": version, "max_tokens": 9, "messages": history}
    body = {**wrapped, "tools": [{"name": "run", "input_schema": {"type": "object"}}]}
    found = respool.compact(body, policy=EAGER, memo=None)
    assert (found.report.format, found.report.model) == ("anthropic", None)
    assert found.report.tokens_after < found.report.tokens_before
    assert respool.check(found.request) == []
    assert {**found.request, "messages": 0} == {**body, "messages": 0}
    assert list(found.request) == list(body)


def test_bedrock_accepts_less_than_anthropic() -> None:
    at_bedrock = media_limits({"anthropic_version": "bedrock-2023-05-31"}).bytes or 0
    assert at_bedrock < (media_limits({}).bytes or 0)
    assert media_limits({"anthropic_version": 7}) == media_limits(None)
