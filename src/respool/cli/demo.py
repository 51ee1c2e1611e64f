"""`respool demo`: show an example history, its projection and the explanation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files

import click
import msgspec
from msgspec import Struct

import respool

from ..markers import find_marker
from ..providers.registry import PROVIDERS
from ..transcript import Part
from .console import Table, show
from .explain import explanation
from .options import STANDARD_STREAM, write_bytes

# Small limits, evaluated often, so that a short example shows every step.
DEMO_POLICY = respool.Policy(
    cap_chars=2_000,
    reevaluate_tokens=100,
    keep_exchanges=0,
    reevaluate_ratio=0.0,
    eager=True,
    tools=respool.Tools([respool.Tool("read_file", rerun=True)]),
)

_MAX_LINE_CHARS = 64  # characters of a part
_CONTEXT_LINES = 3  # lines shown on each side of a marker
_CODEC = PROVIDERS["anthropic"].codec


class _MessageList(Struct):
    """Messages of a body, each as raw JSON."""

    messages: list[msgspec.Raw]


def load_example() -> bytes:
    """Load the bundled example: a coding agent's request with one missing result."""
    return files("respool").joinpath("cli", "demo_session.json").read_bytes()


@click.command()
@click.option("--raw", is_flag=True, help="Print the example itself, to try other commands on.")
def demo(raw: bool) -> None:
    """Show what respool does on a bundled example."""
    body = load_example()
    if raw:
        write_bytes(STANDARD_STREAM, body)
        return
    out = respool.compact(body, policy=DEMO_POLICY, memo=None)
    before, after = _messages(body), _messages(out.request)
    changed = [at for at, old in enumerate(before) if bytes(old) != bytes(after[at])]
    same = len(before) - len(changed)
    show(
        _message_table(f"HISTORY IN: {len(body):,} bytes", before, range(len(before))),
        "WHAT RESPOOL DID, with every edit taken at once; by default each waits until it pays",
        *explanation(out.report),
        _message_table(f"PROJECTION OUT: {len(out.request):,} bytes; what changed", after, changed),
        f"The other {same} messages keep their exact bytes.",
        *_excerpts(after, changed),
        *_verify_originals(body, out),
    )


def _messages(body: bytes) -> list[msgspec.Raw]:
    return msgspec.json.decode(body, type=_MessageList).messages


def _message_table(title: str, messages: Sequence[msgspec.Raw], selected: Sequence[int]) -> Table:
    """Table of messages, one line per part."""
    tools: dict[str, str] = {}
    rows: list[tuple[str, ...]] = []
    for at, message in enumerate(messages):
        for part in _CODEC.decode(at, msgspec.json.decode(message)):
            if part.kind == "call":
                tools[part.id] = part.name
            if at in selected:
                rows.append((f"[{at}]", _role(part), f"{len(part.text):,}", _one_line(part, tools)))
    return Table(title, ("message", "part", "chars", "says"), rows, frozenset({"chars"}))


def _role(part: Part) -> str:
    return part.kind if part.kind in ("call", "result") else part.speaker


def _one_line(part: Part, tools: dict[str, str]) -> str:
    """Text of a part on one short line."""
    name = part.name or tools.get(part.id, "")
    text = " ".join(part.text.split())
    line = f"{name}: {text}" if name else text
    return line if len(line) <= _MAX_LINE_CHARS else f"{line[: _MAX_LINE_CHARS - 1]}…"


def _excerpts(messages: Sequence[msgspec.Raw], changed: Sequence[int]) -> Iterator[str]:
    """Lines around the marker in the failed call's result."""
    for at in changed:
        for part in _CODEC.decode(at, msgspec.json.decode(messages[at])):
            if part.error and find_marker(part.text):
                lines = part.text.splitlines()
                here = next(k for k, line in enumerate(lines) if find_marker(line))
                near = lines[max(here - _CONTEXT_LINES, 0) : here + _CONTEXT_LINES + 3]
                yield "\n".join(
                    [f"Around the marker in message [{at}]:", *(f"  | {x}" for x in near)]
                )


def _verify_originals(body: bytes, out: respool.Compaction[bytes]) -> Iterator[str]:
    """Expand every original and compare it with the input."""
    parts = [
        p for at, m in enumerate(_messages(body)) for p in _CODEC.decode(at, msgspec.json.decode(m))
    ]
    texts = {part.text for part in parts}
    lines = [
        f"  expand({ref!r}): {len(respool.expand(ref, out)):,} chars, "
        f"{'as they went in' if respool.expand(ref, out) in texts else 'NOT what went in'}"
        for ref in out.originals
    ]
    yield "\n".join(["THE WAY BACK", *lines])
