"""Every agent whose transcripts can be read, in the order in which a file is offered to them."""

from __future__ import annotations

from . import (
    claude_code,
    codex,
    copilot_cli,
    gemini_cli,
    inspect_log,
    opencode,
    openhands,
    pi,
    request_log,
)
from .reading import Reader

READERS: tuple[Reader, ...] = tuple(
    Reader(module.AGENT, module.recognises, module.read)
    for module in (
        claude_code,
        codex,
        pi,
        opencode,
        gemini_cli,
        copilot_cli,
        openhands,
        inspect_log,
        request_log,  # last: any body of ours would do
    )
)
