"""Owner, session and conversation of a request: stable, distinct, and without keys."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from respool.compaction.fold import initial_prefix
from respool.engine import RequestHistory, Session
from respool.providers.registry import PROVIDERS
from respool.proxy.auth import ANONYMOUS, owner_of
from respool.proxy.conversation import conversation_id, session_id
from respool.wire.base import FORMATS, FormatName
from tests.effort import examples
from tests.strategies import HISTORY, conversations, render

SALT = b"a salt of the store's own"
KEY = b"sk-ant-very-secret-key"
Headers = list[tuple[bytes, bytes]]


# --- owners ------------------------------------------------------------------------------------

SIGNED = b"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/2026%s/us-east-1/bedrock/aws4_request, Sig=%s"


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ([(b"x-api-key", KEY)], b""),
        ([(b"X-Api-Key", b"  " + KEY + b" ")], b""),
        ([(b"api-key", KEY)], b"api-version=1"),
        ([(b"authorization", b"Bearer " + KEY)], b""),
        ([(b"Authorization", b"bearer  " + KEY)], b"key=other"),
        ([(b"x-goog-api-key", KEY)], b"alt=sse"),
        ([], b"alt=sse&key=" + KEY),
        ([(b"x-api-key", b""), (b"accept", b"x")], b"key=" + KEY),
        ([(b"x-api-key", KEY), (b"authorization", b"Bearer other")], b"key=third"),
    ],
)
def test_one_key_is_one_owner_wherever_it_stands(headers: Headers, query: bytes) -> None:
    owner = owner_of(headers, query, SALT)
    assert owner == owner_of([(b"x-api-key", KEY)], b"", SALT)
    assert len(owner) == 32
    assert KEY.decode() not in owner


def test_owners_differ_by_key_and_by_salt() -> None:
    owners = {
        owner_of([(b"x-api-key", key)], b"", salt)
        for key in (KEY, KEY + b"x", b"\xff\x00")
        for salt in (SALT, b"another", b"l" * 300)
    }
    assert len(owners) == 9


@pytest.mark.parametrize(
    ("headers", "query"),
    [([], b""), ([(b"x-api-key", b" ")], b"key="), ([(b"cookie", b"session=1")], b"%ff&&=x")],
)
def test_a_request_without_a_key_is_anonymous(headers: Headers, query: bytes) -> None:
    assert owner_of(headers, query, SALT) == ANONYMOUS


def test_a_signature_that_changes_with_every_request_is_one_owner() -> None:
    first, second = ([(b"authorization", SIGNED % (d, s))] for d, s in ((b"1", b"a"), (b"2", b"b")))
    assert owner_of(first, b"", SALT) == owner_of(second, b"", SALT) != ANONYMOUS


def test_an_empty_salt_is_refused() -> None:
    with pytest.raises(ValueError, match="salt"):
        owner_of([(b"x-api-key", KEY)], b"", b"")


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40))), st.binary(max_size=60))
def test_whatever_headers_come_there_is_an_owner(headers: Headers, query: bytes) -> None:
    named = [(b"authorization", value) for _, value in headers]
    for given_headers in (headers, named):
        assert len(owner_of(given_headers, query, SALT)) in (32, len(ANONYMOUS))


# --- sessions ----------------------------------------------------------------------------------

ID = "0f1e2d3c-aaaa-bbbb-cccc-000011112222"


def history_with(fields: Any) -> RequestHistory | None:
    """A request with these fields."""
    if fields is None:
        return None
    return Session().parse(json.dumps({**fields, "messages": []}).encode(), "anthropic")


USER = json.dumps({"device_id": "d", "account_uuid": "a", "session_id": ID})


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ([(b"X-Claude-Code-Session-Id", ID.encode())], {"metadata": {"user_id": "{}"}}),
        ([], {"metadata": {"user_id": USER}}),
        ([], {"metadata": {"user_id": f"user_0123abcd_account__session_{ID}"}}),
        ([(b"session-id", ID.encode()), (b"thread-id", b"another")], {}),
        ([(b"session_id", ID.encode())], None),
        ([(b"thread-id", ID.encode())], None),
        ([(b"x-session-id", ID.encode())], None),
        ([(b"x-qwen-code-session-id", ID.encode())], None),
        ([], {"prompt_cache_key": ID}),
    ],
)
def test_one_session_is_one_group_however_it_is_told(headers: Headers, fields: Any) -> None:
    group = session_id(headers, history_with(fields), "owner")
    assert group == session_id([(b"x-session-id", ID.encode())], None, "owner")
    assert group is not None
    assert ID not in group


@pytest.mark.parametrize(
    "fields",
    [
        None, {}, {"metadata": None}, {"metadata": {"user_id": "someone"}},
        {"metadata": {"user_id": 7}}, {"metadata": {"user_id": "[" * 3000}},
        {"metadata": {"user_id": '{"session_id": 5}'}}, {"prompt_cache_key": "k" * 1000},
        {"prompt_cache_key": ""},
    ],
)  # fmt: skip
def test_a_request_that_names_no_session_has_no_group(fields: Any) -> None:
    assert session_id([(b"x-session-id", b"")], history_with(fields), "owner") is None


def test_two_owners_share_no_group() -> None:
    headers = [(b"x-session-id", ID.encode())]
    assert session_id(headers, None, "one") != session_id(headers, None, "two")


# --- conversations -----------------------------------------------------------------------------


def found(messages: list[Any], format: FormatName, owner: str = "owner") -> str:
    body = json.dumps({"model": "m", PROVIDERS[format].codec.history_field: messages}).encode()
    return conversation_id(Session().parse(body, format), owner)


@settings(max_examples=examples(60), deadline=None)
@given(conversations(), st.sampled_from(sorted(FORMATS)))
def test_what_extends_a_request_is_the_same_conversation(
    conversation: Any, format: FormatName
) -> None:
    messages = render(format, conversation)[HISTORY[format]]
    assume(isinstance(messages, list))  # one text is no history
    made = (at for at, one in enumerate(messages) if PROVIDERS[format].codec.is_model_made(one))
    first = next(made, len(messages))
    for count in range(first, len(messages) + 1):
        assert found(messages[:count], format) == found(messages, format)


def chat(*texts: str) -> list[Any]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]


def test_a_fork_is_the_same_conversation() -> None:
    one = found(chat("find it", "looking", "go on", "found"), "anthropic")
    assert found(chat("find it", "looking", "stop"), "anthropic") == one


def test_sub_agents_and_titles_stay_apart() -> None:
    asked = ("fix the maze", "Write a title for: fix the maze", "You are a sub-agent: map it")
    assert len({found(chat(text, "ok", "on"), "anthropic") for text in asked}) == 3


def test_two_owners_share_no_conversation() -> None:
    messages = chat("hello", "hi", "bye")
    assert found(messages, "openai-chat", "one") != found(messages, "openai-chat", "two")


def test_a_cache_breakpoint_that_moves_changes_nothing() -> None:
    plain = [{"type": "text", "text": "hello"}]
    marked = [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]
    said = {"role": "assistant", "content": "hi"}
    both = [
        found([{"role": "user", "content": content}, said], "anthropic")
        for content in (plain, marked)
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize("format", FORMATS)
def test_the_opening_is_the_prefix_under_which_facts_are_kept(format: FormatName) -> None:
    field = PROVIDERS[format].codec.history_field
    content: dict[str, Any] = (
        {"parts": [{"text": "hello"}]} if format == "gemini" else {"content": "hello"}
    )
    history = Session().parse(json.dumps({field: [{"role": "user", **content}]}).encode(), format)
    assert history.opening() == bytes.fromhex(history.prefix) != initial_prefix(format)
    keyed = hashlib.blake2b(history.opening(), digest_size=16, key=b"owner", person=b"opening")
    assert conversation_id(history, "owner") == keyed.hexdigest()


def test_a_history_that_begins_with_the_model_has_a_conversation() -> None:
    said = [{"role": "assistant", "content": "hi"}, {"role": "user", "content": "yes"}]
    assert found(said, "anthropic") == found([], "anthropic")
