"""Clouds: Claude Code through `respool run`, and the providers' own clients through the proxy."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from respool.proxy.decoders import EventStreamDecoder
from tests.e2e.agents import AGENTS, IN_CLOUDS, TURNS, Came, drive, missing
from tests.e2e.test_agents import (
    EARLY,
    alike,
    breakpoints,
    headers,
    holds,
    in_result,
    leaves,
    markers,
)
from tests.proxy.compaction import STEPS, Compacted, answer
from tests.proxy.compaction import drive as drive_proxy
from tests.proxy.sockets import ReceivedRequest, Script
from tests.proxy.test_clouds import EVENTS, MESSAGE, SONNET, STREAM
from tests.support.event_stream import TYPE, event, framed
from tests.support.formats import request
from tests.transcripts.drive import installed

pytestmark = pytest.mark.e2e

clouds = pytest.mark.parametrize("cloud", IN_CLOUDS)
# Only the cloud's own host brings these.
CLOUDS_OWN = "thinking-binding-controls-2026-08-01"
CLOUDS_FIELD = "eager_input_streaming"  # of tools
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}
CLIENTS = "anthropic[bedrock,vertex]==2.8.0"


def driven(cloud: str, folder: Path, *options: str, through: bool = True) -> Came:
    if reason := missing("claude"):
        pytest.skip(reason)
    came = drive(IN_CLOUDS[cloud], folder, *options, through=through)
    assert (came.status, len(came.main)) == (0, TURNS + 1), came.said
    assert "Gauge 7 is the highest." in came.out
    assert {taken.headers["host"] for taken in came.main} == {IN_CLOUDS[cloud].maker}
    return came


@clouds
def test_claude_code_on_a_cloud_is_compacted_and_ends_well(cloud: str, tmp_path: Path):
    came = driven(cloud, tmp_path, *EARLY)
    holds(came, "anthropic")
    assert came.records[-1].epochs >= 1
    assert markers(came.main[-1].body) >= 5
    assert came.records[-1].tokens_after < 0.8 * came.records[-1].tokens_before
    assert all(record.usage is not None and record.cost_after for record in came.records)
    assert re.search(r"; (saved|cost) \$[\d.]+( more)?, \d+ % of a bill of ", came.said)


def elsewhere(body: dict[str, Any]) -> dict[str, Any]:
    """A request as it is sent to another host than the cloud's own."""
    tools = [{name: tool[name] for name in tool if name != CLOUDS_FIELD} for tool in body["tools"]]
    betas = [one for one in body.get("anthropic_beta", ()) if one != CLOUDS_OWN]
    return {**body, "tools": tools, **({"anthropic_beta": betas} if betas else {})}


@clouds
def test_claude_code_on_a_cloud_does_as_without_respool(cloud: str, tmp_path: Path):
    folder = tmp_path / "session"
    alone = driven(cloud, folder, through=False)
    shutil.rmtree(folder)  # paths are in what is sent
    came = driven(cloud, folder, "--no-mcp")
    for before, after in zip(alone.main, came.main, strict=True):
        assert before.path == after.path
        sent = headers(before, "cloud", changed=False)
        sent["anthropic-beta"] = sent["anthropic-beta"].removesuffix(f",{CLOUDS_OWN}")
        assert sent == headers(after, "cloud", changed=False)
        assert breakpoints(before.body) == breakpoints(after.body)
        left, right = dict(leaves(alike(elsewhere(before.body)))), dict(leaves(alike(after.body)))
        assert left.keys() == right.keys()
        differing = [path for path in left if left[path] != right[path]]
        assert all(in_result(path, after.body, "messages") for path in differing), differing


def test_what_claude_code_signs_goes_around_and_that_is_said(tmp_path: Path):
    one = IN_CLOUDS["Bedrock"]
    world = {**one.variables(""), **KEYS}
    del world["AWS_BEARER_TOKEN_BEDROCK"]
    if reason := missing("claude"):
        pytest.skip(reason)
    came = drive(replace(one, variables=lambda _: world), tmp_path)
    assert (came.status, len(came.main), came.records) == (0, TURNS + 1, []), came.said
    assert "AWS signatures do not come through respool" in came.said
    assert came.main[-1].headers["authorization"].startswith("AWS4-HMAC-SHA256")


# --- the providers' own clients ----------------------------------------------------------------


def run_client(code: str, *arguments: str) -> Any:
    """Run a script with the clients of clouds, in an environment of their own."""
    python = installed(CLIENTS, AGENTS) / "bin" / "python"
    world = {"PATH": "/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(
        [python, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=world,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout)


ASK = """
import json, sys
import anthropic
kind, url, file = sys.argv[1:]
asked = json.load(open(file))
if kind == "vertex":
    client = anthropic.AnthropicVertex(
        region="us-east5", project_id="p", access_token="ya29.x", base_url=url + "/v1")
elif kind == "bearer":
    client = anthropic.AnthropicBedrock(
        api_key="bedrock-api-key-x", aws_region="us-east-1", base_url=url)
else:
    client = anthropic.AnthropicBedrock(
        aws_access_key="AKIDEXAMPLE", aws_secret_key="not-a-secret", aws_region="us-east-1",
        base_url=url)
whole = client.messages.create(**asked)
with client.messages.stream(**asked) as stream:
    text = stream.get_final_text()
print(json.dumps([whole.content[0].text, text]))
"""
SPOKEN = [
    *EVENTS[:1],
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "streamed"},
    },
    {"type": "content_block_stop", "index": 0},
    *EVENTS[-2:],
]


def cloud() -> Script:
    """An upstream that answers as Bedrock and Vertex do."""

    async def script(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if "tream" not in received.target:
            writer.write(answer(200, MESSAGE, "Content-Type: application/json"))
            return
        is_framed = received.target.endswith("-with-response-stream")
        lines = (f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in SPOKEN)
        body = b"".join(map(event, SPOKEN)) if is_framed else "".join(lines).encode()
        kind = TYPE if is_framed else "text/event-stream"
        head = ("HTTP/1.1 200 OK", f"Content-Type: {kind}", f"Content-Length: {len(body)}")
        writer.write("\r\n".join((*head, "", "")).encode() + body)

    return script


@pytest.mark.parametrize("kind", ["bearer", "vertex", "signed"])
def test_the_clients_of_clouds_are_answered(kind: str, tmp_path: Path):
    """The first two are compacted. A signature is still that of what arrives."""
    model = "claude-sonnet-4-5@20250929" if kind == "vertex" else SONNET
    asked = {**request("anthropic", "go on", *STEPS), "model": model}
    file = tmp_path / "asked.json"
    file.write_text(json.dumps(asked))

    async def act(proxy: Compacted) -> None:
        url = proxy.standing.running.url
        said = await asyncio.to_thread(run_client, ASK, kind, url, str(file))
        assert said == ["done", "streamed"]
        records = await proxy.records(2)
        assert all(record.usage is not None for record in records)
        assert len(proxy.standing.behind.received) == 2
        is_signed = kind == "signed"
        assert {record.fallback for record in records} == {"signed" if is_signed else ""}
        for received in proxy.standing.behind.received:
            assert (json.loads(received.body)["messages"] == asked["messages"]) == is_signed
            assert not is_signed or verified(received)

    drive_proxy(tmp_path, act, script=cloud())


VERIFY = """
import json, sys
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
target, headers, body = json.loads(sys.argv[1])
signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
given = {name: headers[name] for name in signed}
request = AWSRequest("POST", "http://" + headers["host"] + target, headers=given, data=body)
request.context["timestamp"] = headers["x-amz-date"]
signer = SigV4Auth(Credentials("AKIDEXAMPLE", "not-a-secret"), "bedrock", "us-east-1")
text = signer.string_to_sign(request, signer.canonical_request(request))
made = signer.signature(text, request)
print(json.dumps(headers["authorization"].endswith("Signature=" + made)))
"""


def verified(received: ReceivedRequest) -> bool:
    """Whether the signature of a request is one of its body, its path and its headers."""
    named = {name.lower(): value for name, value in received.headers}
    return run_client(VERIFY, json.dumps([received.target, named, received.body.decode()]))


JUDGE = """
import json, sys
from botocore.eventstream import EventStreamBuffer, ParserError
found = []
for stream in json.load(open(sys.argv[1])):
    buffer, frames = EventStreamBuffer(), []
    try:
        buffer.add_data(bytes.fromhex(stream))
        for one in buffer:
            texts = {k: v for k, v in one.headers.items() if isinstance(v, str)}
            frames.append([texts, one.payload.hex()])
    except ParserError:
        pass
    found.append(frames)
print(json.dumps(found))
"""


def header_block(random: random.Random) -> bytes:
    """Headers of random kinds, with no name twice."""
    sizes = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
    made = b""
    for at in range(random.randrange(5)):
        kind = random.randrange(10)
        name = f"header-{at}".encode()
        value = random.randbytes(sizes.get(kind, 0))
        if kind in (6, 7):
            text = "".join(random.choices("abc-:é☃", k=random.randrange(40))).encode()
            value = len(text).to_bytes(2, "big") + text
        made += bytes((len(name),)) + name + bytes((kind,)) + value
    return made


def streams(random: random.Random) -> Iterator[bytes]:
    """Streams of sound frames, and such with one wrong byte."""
    for number in range(400):
        frames = (
            framed(header_block(random), random.randbytes(random.randrange(60)))
            for _ in range(random.randrange(1, 5))
        )
        stream = bytearray(b"".join(frames))
        if number % 2:
            stream[random.randrange(len(stream))] ^= 1 << random.randrange(8)
        yield bytes(stream)


def test_botocore_reads_the_same_frames(tmp_path: Path):
    every = [STREAM, *streams(random.Random(21))]
    file = tmp_path / "streams.json"
    file.write_text(json.dumps([one.hex() for one in every]))
    theirs = run_client(JUDGE, str(file))
    for stream, frames in zip(every, theirs, strict=True):
        ours = [[one.headers, one.payload.hex()] for one in EventStreamDecoder().feed(stream)]
        assert ours == frames
    assert len(theirs[0]) == len(EVENTS)
    assert sum(map(len, theirs)) > 500
