"""Wrapped SDK clients against a scripted provider: what arrives there, and what the caller sees."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from threading import Event, Thread, get_ident
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, assert_type

import pytest

import respool
from respool import Policy, PolicyError, Tool, Tools
from respool.integrations.request_compactor import RequestCompactor
from respool.integrations.transport import (
    AlreadyWrapped,
    UnknownClient,
    _endpoint_of,
    compaction,
)
from tests.integrations.upstream import FINAL, MARKER, Upstream, read_text, reads, upstream

# Connections of SDK clients are closed when they are collected, at any time.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
EAGER = Policy(
    eager=True,
    keep_exchanges=2,
    reevaluate_tokens=1,
    tools=Tools([Tool("read_file", kind="read", reads="path")]),
)
TURNS = 8


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Collect what a test leaves open here, and not in another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
Loop = Callable[[Any, list[Any], bool], Any]


def _package(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed in this environment")


# --- the SDKs, each with one turn of an agent's loop ---------------------------------------------


def anthropic_client(url: str, *, is_async: bool, **options: Any) -> Any:
    sdk = _package("anthropic")
    made = sdk.AsyncAnthropic if is_async else sdk.Anthropic
    return made(api_key="k", base_url=url, max_retries=0, **options)


def openai_client(url: str, *, is_async: bool, **options: Any) -> Any:
    sdk = _package("openai")
    made = sdk.AsyncOpenAI if is_async else sdk.OpenAI
    return made(api_key="k", base_url=f"{url}/v1", max_retries=0, **options)


def gemini_client(url: str, *, is_async: bool, **options: Any) -> Any:
    _package("google.genai")
    genai = import_module("google.genai")
    return genai.Client(api_key="k", http_options={"base_url": url}, **options)


def anthropic_turn(client: Any, history: list[Any], stream: bool) -> Any:
    tools = [{"name": "read_file", "input_schema": SCHEMA}]
    asked = {"model": "claude-sonnet-4-6", "max_tokens": 500, "tools": tools, "messages": history}
    return client.messages.create(stream=stream, **asked)


def chat_turn(client: Any, history: list[Any], stream: bool) -> Any:
    function = {"name": "read_file", "parameters": SCHEMA}
    tools = [{"type": "function", "function": function}]
    more = {"stream_options": {"include_usage": True}} if stream else {}
    return client.chat.completions.create(
        model="gpt-5.2", tools=tools, messages=history, stream=stream, **more
    )


def responses_turn(client: Any, history: list[Any], stream: bool) -> Any:
    tools = [{"type": "function", "name": "read_file", "parameters": SCHEMA, "strict": False}]
    return client.responses.create(
        model="gpt-5.2", tools=tools, input=history, stream=stream, store=False
    )


def gemini_turn(client: Any, history: list[Any], stream: bool) -> Any:
    declared = {"name": "read_file", "parameters_json_schema": SCHEMA}
    config = {"tools": [{"function_declarations": [declared]}]}
    models = client.aio.models if getattr(client, "used_async", False) else client.models
    ask = models.generate_content_stream if stream else models.generate_content
    return ask(model="gemini-2.5-pro", contents=history, config=config)


WIRES: dict[str, tuple[Any, Any, list[Any]]] = {
    "anthropic": (anthropic_client, anthropic_turn, [{"role": "user", "content": "Read all."}]),
    "chat": (openai_client, chat_turn, [{"role": "user", "content": "Read all."}]),
    "responses": (openai_client, responses_turn, [{"role": "user", "content": "Read all."}]),
    "gemini": (gemini_client, gemini_turn, [{"role": "user", "parts": [{"text": "Read all."}]}]),
}


def answer(wire: str, turn: int, asked: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """The messages that a client adds after the upstream has asked for tools."""
    from tests.integrations import upstream as words

    if wire == "anthropic":
        content = words.anthropic_answer(turn, asked, False, 1)["content"]
        results = [
            {
                "type": "tool_result",
                "tool_use_id": one["id"],
                "content": read_text(one["input"]["path"]),
            }
            for one in content
        ]
        return [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
    if wire == "chat":
        message = words.chat_answer(turn, asked, False, 1)["choices"][0]["message"]
        return [
            {**message, "content": ""},
            *(
                {
                    "role": "tool",
                    "tool_call_id": f"call_{turn}_{at}",
                    "content": read_text(given["path"]),
                }
                for at, (_, given) in enumerate(asked)
            ),
        ]
    if wire == "responses":
        items = words.responses_answer(turn, asked, False, 1)["output"]
        outputs = [
            {
                "type": "function_call_output",
                "call_id": f"call_{turn}_{at}",
                "output": read_text(given["path"]),
            }
            for at, (_, given) in enumerate(asked)
        ]
        return [*items, *outputs]
    calls = [
        {"function_call": {"id": f"call_{turn}_{at}", "name": name, "args": given}}
        for at, (name, given) in enumerate(asked)
    ]
    results = [
        {
            "function_response": {
                "id": f"call_{turn}_{at}",
                "name": name,
                "response": {"output": read_text(given["path"])},
            }
        }
        for at, (name, given) in enumerate(asked)
    ]
    return [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]


def run(wire: str, server: Upstream, client: Any, *, stream: bool, is_async: bool) -> list[Any]:
    """An agent's loop over the whole script; the history that the caller holds at the end."""
    _, turn, first = WIRES[wire]
    history, whole = copy.deepcopy(first), client
    if is_async and wire == "gemini":
        client = SimpleNamespace(aio=client.aio, used_async=True)

    async def over() -> str:
        said = ""
        for number in range(len(server.script) + 1):
            response = turn(client, history, stream)
            response = await response if is_async else response
            said = ""
            if stream and is_async:
                async for event in response:
                    said += str(event)
            elif stream:
                said = "".join(map(str, response))
            else:
                said = str(response)
            if number < len(server.script):
                history.extend(answer(wire, number, list(server.script[number])))
        if is_async:
            await (whole.aio.aclose() if wire == "gemini" else whole.close())
        return said

    assert FINAL in asyncio.run(over())
    return history


CASES = [
    pytest.param(wire, stream, is_async, id=f"{wire}-{'stream' if stream else 'plain'}-{kind}")
    for wire in WIRES
    for stream in (False, True)
    for is_async, kind in ((False, "sync"), (True, "async"))
]


@pytest.mark.parametrize(("wire", "stream", "is_async"), CASES)
def test_what_arrives_is_valid_stable_and_smaller(wire: str, stream: bool, is_async: bool) -> None:
    make = WIRES[wire][0]
    with upstream(reads(TURNS, parallel=2)) as plain:
        whole = run(
            wire, plain, make(plain.url, is_async=is_async), stream=stream, is_async=is_async
        )
    with upstream(reads(TURNS, parallel=2)) as server:
        client = respool.wrap(make(server.url, is_async=is_async), policy=EAGER)
        history = run(wire, server, client, stream=stream, is_async=is_async)
        compactor = compaction(client)
    assert server.problems() == []
    assert server.size < 0.6 * plain.size
    assert server.markers()[-1] >= 8
    assert server.markers()[:2] == [0, 0]
    said = [re.findall(rb"\[respool: [^\]]*\]", raw) for raw in server.raw]
    assert [len(markers) for markers in said] == server.markers()
    epochs = sum(after != before for before, after in pairwise(said))
    assert plain.breaks() == 0
    assert server.breaks() == epochs < TURNS
    assert history == whole  # the caller's own is untouched
    assert MARKER not in json.dumps(history)
    assert compactor.savings.requests == TURNS + 1
    assert compactor.savings.usage.prompt == sum(len(raw) // 4 for raw in server.raw)
    first = json.dumps(history)
    for ref in server.refs():
        lines = compactor.expand(ref).splitlines()
        assert all(json.dumps(line)[1:-1] in first for line in lines[:3])


@pytest.mark.parametrize("wire", WIRES)
def test_with_nothing_to_do_bytes_and_headers_are_the_same(wire: str) -> None:
    make = WIRES[wire][0]
    seen = []
    for wrapped in (False, True):
        with upstream([]) as server:
            client = make(server.url, is_async=False)
            client = respool.wrap(client) if wrapped else client
            run(wire, server, client, stream=False, is_async=False)
            names = {name.lower() for name in server.headers[0]}
            seen.append((server.raw, names))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_a_refused_projection_is_sent_again_as_it_came(wire: str, is_async: bool) -> None:
    make = WIRES[wire][0]
    with upstream(reads(TURNS, parallel=2)) as plain:
        run(wire, plain, make(plain.url, is_async=is_async), stream=False, is_async=is_async)
    with upstream(reads(TURNS, parallel=2), refuse=400) as server:
        client = respool.wrap(make(server.url, is_async=is_async), policy=EAGER)
        run(wire, server, client, stream=False, is_async=is_async)
        savings = compaction(client).savings
    assert len(server.refused) == 1  # from then on, the conversation is left alone
    assert savings.refused == 1
    assert server.raw == plain.raw
    assert server.problems() == []


def test_an_error_of_the_original_stands() -> None:
    openai = _package("openai")
    with upstream(reads(1), refuse=400) as server:
        client = respool.wrap(openai_client(server.url, is_async=False), policy=EAGER)
        history = [{"role": "user", "content": f"What is {MARKER} here?"}]
        with pytest.raises(openai.BadRequestError, match="no such thing"):
            chat_turn(client, history, False)
    assert len(server.refused) == 1


def test_unwrapping_puts_the_same_transports_back() -> None:
    httpx = _flavour_of(openai_client("http://127.0.0.1:9", is_async=False))
    mounted = httpx.HTTPTransport()
    inner = httpx.Client(mounts={"http://other": mounted, "http://none": None})
    client = openai_client("http://127.0.0.1:9", is_async=False, http_client=inner)
    transport = inner._transport
    assert respool.wrap(client) is client
    assert inner._transport is not transport
    assert all(one is None or one is not mounted for one in inner._mounts.values())
    assert respool.unwrap(client) is client
    assert inner._transport is transport
    assert {id(one) for one in inner._mounts.values()} == {id(mounted), id(None)}
    respool.unwrap(client)  # twice is as good as once
    with upstream(reads(TURNS)) as server:
        client = openai_client(server.url, is_async=False)
        respool.unwrap(respool.wrap(client, policy=EAGER))
        run("chat", server, client, stream=False, is_async=False)
    assert not any(server.markers())


def _flavour_of(client: Any) -> Any:
    root = next(
        one.__module__ for one in type(client._client).__mro__ if one.__name__ in ("Client",)
    )
    return sys.modules[root.partition(".")[0]]


def test_wrapping_is_idempotent_and_shared() -> None:
    client = openai_client("http://127.0.0.1:9", is_async=False)
    respool.wrap(client, policy=EAGER)
    transport = client._client._transport
    respool.wrap(client, policy=EAGER)
    copied = client.with_options(timeout=1)
    respool.wrap(copied, policy=EAGER)
    assert client._client._transport is transport
    assert compaction(copied) is compaction(client)
    with pytest.raises(AlreadyWrapped, match="unwrap"):
        respool.wrap(copied, policy="lean")
    with pytest.raises(AlreadyWrapped, match="unwrap"):
        respool.wrap(copied, store="other.db")


def test_a_proxy_mount_is_compacted_too() -> None:
    with upstream(reads(TURNS, parallel=2)) as server:
        httpx = _flavour_of(openai_client(server.url, is_async=False))
        inner = httpx.Client(mounts={"all://127.0.0.1": httpx.HTTPTransport()})
        client = openai_client(server.url, is_async=False, http_client=inner)
        run("chat", server, respool.wrap(client, policy=EAGER), stream=False, is_async=False)
    assert server.markers()[-1] >= 8


@pytest.mark.parametrize("is_async", [False, True])
def test_a_proxy_of_the_environment_is_kept(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with upstream(reads(TURNS, parallel=2)) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        client = openai_client("http://provider.invalid", is_async=is_async)
        run("chat", server, respool.wrap(client, policy=EAGER), stream=False, is_async=is_async)
    assert server.markers()[-1] >= 8
    assert {path for path, _ in server.received} == {"http://provider.invalid/v1/chat/completions"}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("flavour", ["httpx", "httpx2"])
def test_the_flavour_is_read_off_the_client(flavour: str, is_async: bool) -> None:
    module = _package(flavour)
    with upstream(reads(TURNS, parallel=2)) as server:
        inner = module.AsyncClient() if is_async else module.Client()
        try:
            client = openai_client(server.url, is_async=is_async, http_client=inner)
        except TypeError as error:
            pytest.skip(f"this openai takes no {flavour}: {error}")
        respool.wrap(client, policy=EAGER)
        base = module.AsyncBaseTransport if is_async else module.BaseTransport
        assert isinstance(inner._transport, base)
        run("chat", server, client, stream=True, is_async=is_async)
    assert server.problems() == []
    assert server.markers()[-1] >= 8


@pytest.mark.parametrize("flavour", ["httpx", "httpx2"])
def test_an_http_client_without_an_sdk(flavour: str) -> None:
    module = _package(flavour)
    history = [{"role": "user", "content": "Read all."}]
    for turn, asked in enumerate(reads(TURNS)):
        history += answer("chat", turn, asked)
    whole = json.dumps({"model": "gpt-5.2", "messages": history}).encode()
    with upstream([]) as server, respool.wrap(module.Client(), policy=EAGER) as client:
        path = f"{server.url}/v1/chat/completions"
        assert client.post(path, content=whole).json()["choices"]
        assert client.get(f"{server.url}/v1/models").json() == {"data": []}
        # Nothing is changed that a digest or an encoding was made for, or that is elsewhere.
        fixed: list[dict[str, str]] = [{"content-md5": "x"}, {"content-encoding": "gzip"}]
        for headers in fixed:
            client.post(path, content=whole, headers=headers)
        client.post(f"{server.url}/v1/threads/t/messages", content=whole)
    assert server.markers()[0] > 0
    assert len(server.raw[0]) < len(whole)
    assert server.raw[1:] == [whole] * 3


@pytest.mark.parametrize("wire", ["anthropic", "chat", "gemini"])
def test_all_else_of_a_client_is_as_it_was(wire: str) -> None:
    make = WIRES[wire][0]
    client = make("http://127.0.0.1:9", is_async=False)
    http = client._api_client._httpx_client if wire == "gemini" else client._client
    transport, timeout, headers = http._transport, http.timeout, dict(http.headers)
    kind, members = type(client), set(vars(client))
    assert respool.wrap(client) is client
    assert type(client) is kind
    assert set(vars(client)) == members
    assert (http.timeout, dict(http.headers)) == (timeout, headers)
    assert http._transport._pool is transport._pool  # whatever is asked of the transport
    http.close()


if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

    assert_type(respool.wrap(OpenAI()), OpenAI)
    assert_type(respool.unwrap(AsyncOpenAI()), AsyncOpenAI)


def test_tokens_are_counted_of_the_projection() -> None:
    with upstream(reads(TURNS)) as server:
        client = respool.wrap(anthropic_client(server.url, is_async=False), policy=EAGER)
        history = run("anthropic", server, client, stream=False, is_async=False)
        given = {"model": "claude-sonnet-4-6", "messages": history}
        tools = [{"name": "read_file", "input_schema": SCHEMA}]
        counted = client.messages.count_tokens(**given, tools=tools).input_tokens
        respool.unwrap(client)
        whole = client.messages.count_tokens(**given, tools=tools).input_tokens
    assert counted < 0.6 * whole


@pytest.mark.parametrize("is_async", [False, True])
def test_a_late_decision_is_not_waited_for(is_async: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with upstream(reads(3)) as server:
        client = respool.wrap(
            openai_client(server.url, is_async=is_async), policy=EAGER, deadline=0.05
        )
        compactor = compaction(client)
        decide = compactor._decider.decide

        ended = Event()

        def slow(*given: Any, **named: Any) -> Any:
            ended.wait(20)
            return decide(*given, **named)

        monkeypatch.setattr(compactor._decider, "decide", slow)
        started = time.monotonic()
        run("chat", server, client, stream=False, is_async=is_async)
        assert time.monotonic() - started < 20  # that long takes the first decision
        ended.set()
    assert not any(server.markers())


def test_the_event_loop_goes_on_while_it_is_decided() -> None:
    with upstream([]) as server:
        client = respool.wrap(openai_client(server.url, is_async=True), policy=EAGER)
        compactor = compaction(client)
        decide, threads = compactor._decider.decide, set[int]()

        def noted(*given: Any, **named: Any) -> Any:
            threads.add(get_ident())
            return decide(*given, **named)

        compactor._decider.decide = noted
        run("chat", server, client, stream=False, is_async=True)
    assert threads
    assert get_ident() not in threads


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v1/messages", ("anthropic", False, None)),
        ("/v1/messages/count_tokens", ("anthropic", True, None)),
        ("/v1/messages/batches", None),
        ("/base/messages/v1/chat/completions", ("openai-chat", False, None)),
        ("/openai/deployments/gpt-5/chat/completions", ("openai-chat", False, "gpt-5")),
        ("/v1/responses", ("openai-responses", False, None)),
        ("/v1/responses/input_tokens", ("openai-responses", True, None)),
        ("/v1/responses/resp_1/cancel", None),
        ("/v1/threads/t/messages", None),
        ("/v1beta/models/gemini-3-pro:generateContent", ("gemini", False, "gemini-3-pro")),
        ("/v1beta/models/gemini-3-pro:streamGenerateContent", ("gemini", False, "gemini-3-pro")),
        ("/v1beta/models/gemini-3-pro:countTokens", ("gemini", True, "gemini-3-pro")),
        ("/v1beta/models/e:embedContent", None),
        ("/p/publishers/anthropic/models/claude:rawPredict", ("anthropic", False, "claude")),
        ("/p/publishers/anthropic/models/count-tokens:rawPredict", ("anthropic", True, None)),
        ("/model/us.anthropic.claude%3A0/invoke", ("anthropic", False, "us.anthropic.claude:0")),
        ("/model/m/invoke-with-response-stream", ("anthropic", False, "m")),
        ("/v1/embeddings", None),
    ],
)
def test_endpoints(path: str, found: tuple[str, bool, str | None] | None) -> None:
    endpoint = _endpoint_of(path)
    assert (endpoint and (endpoint.format, endpoint.is_count, endpoint.model)) == found


def test_threads_share_a_client() -> None:
    servers = []
    client = None
    with upstream(reads(TURNS, parallel=2)) as one, upstream(reads(TURNS, parallel=2)) as two:
        servers = [one, two]
        client = respool.wrap(openai_client(one.url, is_async=False), policy=EAGER)
        other = client.with_options(base_url=f"{two.url}/v1")
        work = [
            Thread(
                target=run, args=("chat", server, each), kwargs={"stream": False, "is_async": False}
            )
            for server, each in ((one, client), (two, other))
        ]
        for each in work:
            each.start()
        for each in work:
            each.join()
    for server in servers:
        assert server.problems() == []
        assert server.markers()[-1] >= 8


def test_google_s_async_client_leaves_aiohttp_and_comes_back() -> None:
    client = gemini_client("http://127.0.0.1:9", is_async=True)
    uses = getattr(client._api_client, "_use_aiohttp", None)
    if uses is None or not uses():
        pytest.skip("this google-genai does not use aiohttp here")
    respool.wrap(client)
    assert not uses()
    respool.unwrap(client)
    assert uses()


def test_originals_outlive_the_process_in_a_store(tmp_path: Any) -> None:
    path = tmp_path / "respool.db"
    with upstream(reads(TURNS)) as server:
        client = respool.wrap(openai_client(server.url, is_async=False), policy=EAGER, store=path)
        run("chat", server, client, stream=False, is_async=False)
    from respool.store import SQLiteStore

    ref = server.refs()[0]
    assert SQLiteStore(path).original(ref, None) == compaction(client).expand(ref)


@pytest.mark.parametrize(
    "given", ["text", None, object(), SimpleNamespace(_client=SimpleNamespace())]
)
def test_what_cannot_be_wrapped_gets_a_sentence(given: object) -> None:
    with pytest.raises(UnknownClient, match="a client of anthropic, openai or google-genai"):
        respool.wrap(given)


def test_wrong_use_gets_a_sentence() -> None:
    client = openai_client("http://127.0.0.1:9", is_async=False)
    with pytest.raises(UnknownClient, match="OpenAI is a class; pass a client"):
        respool.wrap(type(client))
    with pytest.raises(UnknownClient, match="not a part of it"):
        respool.wrap(client.chat.completions)
    with pytest.raises(PolicyError, match="name of a preset"):
        respool.wrap(client, policy="quick")
    with pytest.raises(PolicyError, match="seconds above 0"):
        respool.wrap(client, deadline=0)
    with pytest.raises(UnknownClient, match="a RequestCompactor"):
        respool.wrap(client, compactor=client)
    with pytest.raises(AlreadyWrapped, match="give only it"):
        respool.wrap(client, policy=EAGER, compactor=RequestCompactor())
    with pytest.raises(UnknownClient, match="is not wrapped"):  # after all of them
        compaction(client)


@pytest.mark.parametrize("flavour", ["httpx", "httpx2"])
def test_a_transport_of_the_other_flavour_gets_a_sentence(flavour: str) -> None:
    own, other = _package(flavour), _package({"httpx": "httpx2", "httpx2": "httpx"}[flavour])
    client = own.Client(transport=other.HTTPTransport())
    with pytest.raises(UnknownClient, match=f"Give it one of {flavour}'s transports"):
        respool.wrap(client)


def test_clients_share_a_compactor() -> None:
    compactor = RequestCompactor(EAGER)
    with upstream(reads(TURNS)) as server:
        made = [openai_client(server.url, is_async=False) for _ in range(2)]
        for client in made:
            respool.wrap(client, compactor=compactor)
        run("chat", server, made[0], stream=False, is_async=False)
        assert compaction(made[1]) is compactor
        respool.unwrap(made[0])
        assert compactor.expand(server.refs()[0])  # it is not closed with one of them


def test_a_client_that_is_not_wrapped_has_no_compaction() -> None:
    with pytest.raises(UnknownClient, match=r"wrap"):
        compaction(openai_client("http://127.0.0.1:9", is_async=False))


def test_coroutines_of_the_library() -> None:
    history = [{"role": "user", "content": "Read all."}]
    for turn, asked in enumerate(reads(TURNS)):
        history += answer("chat", turn, asked)
    request = {"model": "gpt-5.2", "messages": history}

    async def all_of_them() -> None:
        out = await respool.aio.compact(request, policy=EAGER)
        assert out.request == respool.compact(request, policy=EAGER).request != request
        ref = next(iter(out.originals))
        assert await respool.aio.expand(ref, out) == out.originals[ref]
        planned = await respool.aio.plan(request, policy=EAGER)
        assert (await respool.aio.apply(request, planned)).request == out.request
        assert await respool.aio.check(out.request) == []
        assert (await respool.aio.repair(request)).request == request
        late = await respool.aio.compact(request, policy=EAGER, memo=None, deadline=1e-9)
        assert late.request is request
        assert late.report.untouched == "late: over 1e-09 s"

    asyncio.run(all_of_them())
