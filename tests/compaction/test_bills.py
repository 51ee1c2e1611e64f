"""Bills of sessions with and without respool, by an independent cache model.

It shares nothing with respool's own replay and prices, so that the two cannot be wrong together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

import respool
from respool import Memo, Policy

READ, WRITE, LOOK_BACK, MAX_BREAKPOINTS = 0.1, 1.25, 20, 4
EPHEMERAL = {"type": "ephemeral"}
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Bash")]
SYSTEM = "You are careful, and look at everything twice before you say that it is done. " * 60
WORDS = ("thread", "loom", "weave", "spin", "turn", "knot", "shuttle", "warp", "weft", "yarn")

Message = dict[str, Any]
Client = Callable[[Any], dict[str, Any]]


class Blocks:
    """Anthropic's cache (WIRE, 8): entries at marks, looked for 20 positions back; never cold."""

    def __init__(self, minimum: int) -> None:
        self._minimum = minimum
        self._entries: set[int] = set()
        self.found = 0  # blocks of the last request that were read from it

    def bill(self, request: dict[str, Any]) -> float:
        """Cost of one request, in tokens of plain input; a token is four characters."""
        chain, sums, places, controls = [0], [0], [0], list[int]()
        run = ""
        for kind, said, with_control in _blocks(request):
            chain.append(hash((chain[-1], said)))
            sums.append(sums[-1] + len(said) // 4)
            runs = kind in ("tool_use", "tool_result") and kind == run
            places.append(places[-1] + (not runs))
            run = kind
            if with_control:
                controls.append(len(chain) - 1)
        assert len(controls) <= MAX_BREAKPOINTS
        controls = [at for at in controls if sums[at] >= self._minimum]
        self.found = found = max((self._found(at, chain, places) for at in controls), default=0)
        self._entries |= {chain[at] for at in controls}
        last = sums[controls[-1]] if controls else 0
        written = max(0, last - sums[found])
        return READ * sums[found] + WRITE * written + sums[-1] - sums[found] - written

    def _found(self, control: int, chain: list[int], places: list[int]) -> int:
        at = control
        while at > 0 and places[control] - places[at] < LOOK_BACK:
            if chain[at] in self._entries:
                return at
            at -= 1
        return 0


def _blocks(request: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Kind, words and mark of each block; on OpenAI's wire a message is one, and marked at last."""
    head = [*request.get("tools", []), *request.get("system", [])]
    yield from (("", _said(block), "cache_control" in block) for block in head)
    messages = request["messages"]
    if "system" not in request:
        for at, message in enumerate(messages):
            kind = "tool_result" if message["role"] == "tool" else ""
            yield kind, _said(message), at in (0, len(messages) - 1)
        return
    blocks = [block for message in messages for block in message["content"]]
    for at, block in enumerate(blocks):
        automatic = "cache_control" in request and at == len(blocks) - 1
        yield block["type"], _said(block), automatic or "cache_control" in block


def _said(block: Message) -> str:
    return json.dumps({key: said for key, said in block.items() if key != "cache_control"})


# Sessions: files that are read, read again and run.


def lines(chance: Random, count: int) -> str:
    return "\n".join(f"{n:6}\t{' '.join(chance.choices(WORDS, k=6))}" for n in range(1, count + 1))


def turns(seed: int, count: int, first: int, most: int) -> list[tuple[str, str, str]]:
    """Tool, argument and result of so many calls; the first result has so many lines."""
    chance = Random(seed)
    files = {f"/src/{name}.py": lines(chance, chance.randint(1, most)) for name in WORDS[:6]}
    found = [("Read", "/src/first.py", lines(chance, first))]
    for _ in range(count - 1):
        file = chance.choice(list(files))
        printed = lines(chance, chance.randint(1, most)).replace("\t", " INFO ")
        read = ("Read", file, files[file])
        found.append(read if chance.random() < 0.6 else ("Bash", f"make {file}", printed))
    return found


def anthropic(session: list[tuple[str, str, str]]) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    for n, (tool, argument, result) in enumerate(session):
        key = "file_path" if tool == "Read" else "command"
        call = {"type": "tool_use", "id": f"t{n}", "name": tool, "input": {key: argument}}
        answer = {"type": "tool_result", "tool_use_id": f"t{n}", "content": result}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [answer]})
    return messages


def chat(session: list[tuple[str, str, str]]) -> list[Message]:
    messages: list[Message] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "go"},
    ]
    for n, (tool, argument, result) in enumerate(session):
        key = "file_path" if tool == "Read" else "command"
        does = {"name": tool, "arguments": json.dumps({key: argument})}
        call = {"id": f"t{n}", "type": "function", "function": does}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"t{n}", "content": result},
        ]
    return messages


# Clients: how they mark what they send.


def placing_breakpoints(
    *back: int, head: bool = True, system: str = SYSTEM, **fields: Any
) -> Client:
    """A client that marks these of its messages, counted from the end, and perhaps its head."""

    def ask(messages: list[Message]) -> dict[str, Any]:
        sent, own = list(messages), {"cache_control": EPHEMERAL} if head else {}
        for at in back:
            if at <= len(sent):
                content = sent[-at]["content"]
                with_control = [*content[:-1], {**content[-1], "cache_control": EPHEMERAL}]
                sent[-at] = {**sent[-at], "content": with_control}
        told = [{"type": "text", "text": system, **own}]
        tools = [TOOLS[0], {**TOOLS[1], **own}]
        return {"max_tokens": 99, "tools": tools, "system": told, "messages": sent, **fields}

    return ask


def place_on_first(messages: list[Message]) -> dict[str, Any]:
    """A client that marks its head and its first message, whatever comes behind that."""
    return placing_breakpoints(len(messages))(messages)


CLIENTS: dict[str, Client] = {
    "the newest message": placing_breakpoints(1),
    "the newest message, and no head": placing_breakpoints(1, head=False),
    "the two newest of the user": placing_breakpoints(1, 3),
    "the four newest of the user": placing_breakpoints(1, 3, 5, 7, head=False),
    "as the provider likes": placing_breakpoints(head=False, cache_control=EPHEMERAL),
    "the head alone": placing_breakpoints(),
    "the head and the first message": place_on_first,
    "nothing": placing_breakpoints(head=False),
}


def ratio(
    requests: list[dict[str, Any]],
    policy: Policy,
    minimum: int,
    format: str = "anthropic",
    *,
    facts: respool.Facts | None = None,
    sent: Client | None = None,
) -> float:
    """The bill with respool, next to that without; `sent` is what becomes of a request behind."""
    without, paid, memo = Blocks(minimum), Blocks(minimum), Memo()
    plain = spent = 0.0
    for request in requests:
        out = respool.compact(request, format=format, policy=policy, facts=facts, memo=memo).request
        plain += without.bill(sent(request) if sent else request)
        spent += paid.bill(sent(out) if sent else out)
    return spent / plain


@pytest.mark.parametrize(
    ("client", "preset"),
    [
        pytest.param(client, preset, marks=() if at % 2 == turn else pytest.mark.slow)
        for at, client in enumerate(CLIENTS)
        for turn, preset in enumerate(("safe", "lean"))
    ],
)
def test_a_session_is_cheaper_however_it_is_marked(client: str, preset: str) -> None:
    messages = anthropic(turns(3, 30, 40, 200))
    requests = [
        CLIENTS[client](messages[:end]) | {"model": "claude-opus-4-8"}
        for end in range(1, len(messages) + 1, 2)
    ]
    assert ratio(requests, Policy.preset(preset), 1_024) < 0.95


def test_claude_through_a_gateway_is_cheaper_too() -> None:
    messages = chat(turns(3, 30, 40, 200))
    tools = [{"type": "function", "function": {**tool, "parameters": {}}} for tool in TOOLS]
    requests = [
        {"model": "anthropic/claude-opus-4.8", "tools": tools, "messages": messages[:end]}
        for end in range(2, len(messages) + 1, 2)
    ]
    assert ratio(requests, Policy(), 1_024, "openai-chat") < 0.95


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_the_prefix_before_every_cut_is_found(seed: int) -> None:
    """Also where the cut before it has written what stands around it in one go."""
    messages = anthropic(turns(seed, 150, 40, 120))
    cache, memo, epochs, looked = Blocks(1_024), Memo(), 0, 0
    for end in range(1, len(messages) + 1, 2):
        request = CLIENTS["the newest message"](messages[:end]) | {"model": "claude-opus-4-8"}
        out = respool.compact(
            request,
            policy=Policy(
                reevaluate_tokens=1_500, reevaluate_ratio=0.02, miss_penalty=1.0, keep_exchanges=0
            ),
            memo=memo,
        )
        cache.bill(out.request)
        ours = [
            at
            for at, (came, went) in enumerate(_breakpoints(request, out.request), 1)
            if went > came
        ]
        if ours and out.report.epochs > epochs:
            assert ours == [cache.found], f"request {end // 2}"
            looked += 1
        epochs = out.report.epochs
    assert looked > 2, "there were hardly any, so this shows nothing"


def _breakpoints(request: dict[str, Any], sent: dict[str, Any]) -> Iterator[tuple[bool, bool]]:
    """Blocks with a cache breakpoint, in the request and in the projection."""
    pairs = zip(_blocks(request), _blocks(sent), strict=True)
    return ((came, went) for (_, _, came), (_, _, went) in pairs)


def behind(request: dict[str, Any]) -> dict[str, Any]:
    """Add the breakpoints of a gateway to a request without any: on its head and its end."""
    system = [{**request["system"][0], "cache_control": EPHEMERAL}]
    *before, last = request["messages"]
    content = [*last["content"][:-1], {**last["content"][-1], "cache_control": EPHEMERAL}]
    return {**request, "system": system, "messages": [*before, {**last, "content": content}]}


def test_marks_that_a_gateway_sets_are_a_fact() -> None:
    messages = anthropic(turns(3, 60, 40, 150))
    requests = [
        CLIENTS["nothing"](messages[:end]) | {"model": "claude-opus-4-8"}
        for end in range(1, len(messages) + 1, 2)
    ]
    first = respool.compact(requests[0], memo=None).report.prefix
    assert first is not None
    known = respool.Facts(breakpoints=((first, "behind"),))
    told, untold = (
        ratio(requests, Policy(keep_exchanges=0), 1_024, facts=one, sent=behind)
        for one in (known, None)
    )
    assert told < 0.8 < 0.9 < untold


@pytest.mark.parametrize("first", range(180, 421, 30))
def test_a_prompt_that_is_cached_is_not_made_too_short_for_it(first: int) -> None:
    """With a short head and short results, all of it has about as much as a prompt must have."""
    messages = anthropic(turns(1, 20, first, 3))
    ask = placing_breakpoints(1, system="Be careful.")
    requests = [
        ask(messages[:end]) | {"model": "claude-haiku-4-5"}
        for end in range(1, len(messages) + 1, 2)
    ]
    assert ratio(requests, Policy(), 4_096) <= 1.0
