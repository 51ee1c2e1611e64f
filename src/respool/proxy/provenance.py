"""Provenance of a request: the agent that sent it, its project folder and its first prompt.

It is shown to people and decides nothing. A client may claim anything, so it is never trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from ..engine import RequestHistory
from ..regex import lazy_compile
from .asgi import Headers

_MAX_AGENT_CHARS: Final = 40
_MAX_NAMING_CHARS: Final = 200  # of a user agent, in which it says who it is
_MAX_FOLDER_CHARS: Final = 300
_MAX_PROMPT_CHARS: Final = 160
_MAX_MESSAGES: Final = 10  # looked at, from the first one on
_MAX_SCANNED_CHARS: Final = 200_000  # of one text

# By how the user agent begins; each was seen from the real client.
_USER_AGENTS: Final = (
    ("claude-cli/", "Claude Code"),
    ("codex", "Codex"),
    ("opencode/", "opencode"),
    ("geminicli", "Gemini CLI"),
    ("qwencode/", "Qwen Code"),
    ("copilot", "Copilot"),
    ("pi-coding-agent", "pi"),
    ("aider/", "aider"),
    ("continue", "Continue"),
    ("cline/", "Cline"),
    ("roocode/", "Roo Code"),
    ("kilocode/", "Kilo Code"),
    ("zed/", "Zed"),
    ("goose/", "goose"),
    ("crush/", "Crush"),
)
# Clients that send only their SDK's user agent, by a sentence of their system prompt.
_SENTENCES: Final = (
    ("operating inside pi, a coding agent", "pi"),
    ("You are the GitHub Copilot CLI", "Copilot"),
    ("You are a coding agent running in the Codex CLI", "Codex"),
    ("You are OpenCode", "opencode"),
    ("You are opencode", "opencode"),
    ("You are Qwen Code", "Qwen Code"),
    ("Anthropic's official CLI for Claude", "Claude Code"),
    ("You are OpenHands agent", "OpenHands"),
    ("You are Cline", "Cline"),
    ("Always use best practices when coding.\nRespect and use existing conventions", "aider"),
    ("If you need to describe code changes, do so *briefly*", "aider"),
    ("You are a helpful assistant that can interact with a computer", "mini-swe-agent"),
)
_SDKS: Final = lazy_compile(r"(?:Async)?(OpenAI|Anthropic)/(?:JS|Python|Go|Java|Ruby)")
_PRODUCT: Final = lazy_compile(r"[A-Za-z][A-Za-z0-9._-]{1,39}")

# A folder behind the words by which clients tell it: Claude Code, opencode, pi and Copilot, Codex,
# Qwen Code, Gemini CLI.
_FOLDER: Final = lazy_compile(
    r"(?:[Ww]orking directory: |<cwd>|working in the directory: |"
    r"Workspace Directories:\*\*\s{0,8}\n\s{0,8}- )"
    r"((?:/|~|[A-Za-z]:[\\/]|\\\\)[^\n<]{0,400})"
)
# A block that a client puts before or beside what its user wrote.
_BLOCK: Final = lazy_compile(
    r"\s*<([a-zA-Z][\w-]{0,60})(?:\s[^>\n]{0,200})?>.*?</\1>\s*", re.DOTALL
)
_CONTEXT: Final = (
    "This is the Gemini CLI. We are setting up",
    "This is the Qwen Code. We are setting up",
    "I am not sharing the full contents of any files",
    "I have *added these files to the chat*",
    "# AGENTS.md instructions",
    "Caveat: The messages below were generated",
    "Generate a title for this conversation",
)
_ASKED: Final = lazy_compile(r"Please solve this issue: ")


class Launch(Struct, frozen=True):
    """The agent that this proxy was started for, and its folder; empty: any."""

    agent: str = ""
    project: str = ""


class Provenance(Struct, frozen=True):
    """The agent, the project folder and the first prompt of a request; empty: unknown."""

    agent: str = ""
    project: str = ""
    prompt: str = ""


def read_opening(history: RequestHistory) -> Provenance:
    """Read what the first messages of a history tell."""
    agent = project = prompt = ""
    for speaker, text in history.first_texts(_MAX_MESSAGES):
        project = project or _folder_in(text)
        if speaker == "system":
            agent = agent or _agent_in(text)
        elif speaker == "user":
            prompt = prompt or _prompt_in(text)
    return Provenance(agent, project, prompt)


def read_head(history: RequestHistory) -> Provenance:
    """Read what the system prompt beside the history tells; once for requests that share it."""

    def read() -> Provenance:
        texts = list(history.head_texts())
        agents = (name for text in texts if (name := _agent_in(text)))
        folders = (folder for text in texts if (folder := _folder_in(text)))
        return Provenance(next(agents, ""), next(folders, ""))

    return history.once("provenance", read)


def combine(headers: Headers, head: Provenance, opening: Provenance, launch: Launch) -> Provenance:
    """What a request shows itself; where it shows nothing, what the launch says."""
    user_agent = _header(headers, b"user-agent") or _header(headers, b"originator")
    known, product = _named_by(user_agent[:_MAX_NAMING_CHARS])
    agent = known or head.agent or opening.agent or launch.agent or product
    project = head.project or opening.project or launch.project
    return Provenance(agent[:_MAX_AGENT_CHARS], project[:_MAX_FOLDER_CHARS], opening.prompt)


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == wanted), "")


@lru_cache(64)
def _named_by(user_agent: str) -> tuple[str, str]:
    """The known agent that a user agent names, and the product, either of which may be empty."""
    return _known_agent(user_agent), _product(user_agent)


def _known_agent(user_agent: str) -> str:
    plain = user_agent[:_MAX_AGENT_CHARS].lower()
    return next((name for start, name in _USER_AGENTS if plain.startswith(start)), "")


def _product(user_agent: str) -> str:
    """The name of an unknown client, by its user agent."""
    if found := _SDKS.match(user_agent):
        return f"{found[1]}'s SDK"
    found = _PRODUCT.match(user_agent)
    return found[0] if found else ""


def _agent_in(text: str) -> str:
    start = text[:2_000]
    return next((name for sentence, name in _SENTENCES if sentence in start), "")


def _folder_in(text: str) -> str:
    found = _FOLDER.search(text, 0, _MAX_SCANNED_CHARS)
    folder = found[1].strip().rstrip(",.;") if found else ""
    return folder.rstrip("/\\") or folder


def _prompt_in(text: str) -> str:
    """The first words of a user's text, without what its client put there; empty: none."""
    text = text[:_MAX_SCANNED_CHARS]
    while found := _BLOCK.match(text):
        text = text[found.end() :]
    text = _ASKED.sub("", text.lstrip(), count=1)
    if text.startswith(_CONTEXT):
        return ""
    words = " ".join(text[: 8 * _MAX_PROMPT_CHARS].split()).strip('"')
    return words if len(words) <= _MAX_PROMPT_CHARS else f"{words[: _MAX_PROMPT_CHARS - 1]}…"
