"""Every agent whose transcripts can be read, in the order in which a file is offered to them."""

from __future__ import annotations

from . import (
    claude_code,
    codex,
    collection,
    copilot_cli,
    gemini_cli,
    inspect_log,
    opencode,
    openhands,
    pi,
    request_log,
    trajectory,
)
from .reading import Reader

READERS: tuple[Reader, ...] = (
    Reader(collection.AGENT, collection.recognises, collection.read, is_streaming=True),
    Reader(claude_code.AGENT, claude_code.recognises, claude_code.read),
    Reader(codex.AGENT, codex.recognises, codex.read),
    Reader(pi.AGENT, pi.recognises, pi.read),
    Reader(opencode.AGENT, opencode.recognises, opencode.read, opencode.stored),
    Reader(gemini_cli.AGENT, gemini_cli.recognises, gemini_cli.read),
    Reader(copilot_cli.AGENT, copilot_cli.recognises, copilot_cli.read),
    Reader(openhands.AGENT, openhands.recognises, openhands.read, openhands.stored),
    Reader(inspect_log.AGENT, inspect_log.recognises, inspect_log.read, inspect_log.stored),
    Reader(request_log.AGENT, request_log.recognises, request_log.read, is_streaming=True),
    Reader(trajectory.AGENT, trajectory.recognises, trajectory.read),  # last: any list would do
)
