"""Outcome of a call, parsed from its output."""

from __future__ import annotations

import re
from typing import Final, cast

import msgspec
from msgspec import Struct

from ..history.failures import (
    error_line,
    has_failed_ending,
    is_write_confirmed,
    is_write_refused,
    strip_color,
)
from ..regex import lazy_compile
from ..shapes.decoration import full_output_path, split_frame
from ..tools.use import ToolKind

_HEAD_CHARS: Final = 2_000  # characters that hold the beginning of a frame
_TAIL_CHARS: Final = 1_000  # characters that hold the end of a run's output
_LAST_LINES: Final = 6  # lines in them
_MAX_LINE_CHARS: Final = 1_000  # characters of a line that are checked
_MAX_LINES: Final = 4_000  # lines that are searched for a failure

_FRAME = lazy_compile(r"^(?:Wall time|Process exited|Exit code|Exit status)\b.*$", re.MULTILINE)
_FRAMED = lazy_compile(r"^Output:[ ]?\n?", re.MULTILINE)
_STATUS = lazy_compile(
    r"^(?:process )?exit(?:ed)?(?: with)?(?: code| status)?:? (-?\d{1,3})\b"
    r"|\bexit status (\d{1,3})\b",
    re.IGNORECASE | re.MULTILINE,
)
# Outcome below an output: Copilot, OpenHands, pi.
_CLOSED = lazy_compile(
    r"(?:(?:\n|\A)(?:[<\[][^\n<>\[\]]{1,120}\bexit code -?\d{1,10}\.?[>\]]"
    r"|\[(?:Current working directory|Python interpreter): [^\n]{1,500}\]"
    r"|Command exited with code -?\d{1,10})){1,4}\s{0,4}\Z"
)
_MAX_BLANK_CHARS: Final = 4  # after such an outcome
# Outcome around it: Gemini CLI and qwen-code, mini-swe-agent.
_OPENED = lazy_compile(
    r"(?:Command: (?:[^\n]*+\n)+?Directory: [^\n]*+\n)?(?:Output|Stdout): "
    r"|<returncode>-?\d{1,10}</returncode>\s{0,4}<output>\n?"
)
_NOTED = lazy_compile(
    r"(?:(?:\n|\A)(?:</output>|Error: \(none\)|Stderr: \(empty\)|Exit Code: [^\n]{1,20}"
    r"|Signal: [^\n]{1,20}|Background PIDs: [^\n]{1,200}|Process Group PGID: [^\n]{1,20})){1,6}"
    r"\s{0,4}\Z"
)
_ENDED = lazy_compile(
    r"exit(?:ed with)?(?: exit)? code:? (-?\d{1,10})|<returncode>(-?\d{1,10})<", re.IGNORECASE
)
# Notes above and below a file: OpenHands, opencode, pi, Copilot.
_SHOWN = lazy_compile(
    r"Here's the result of running `cat -n` on [^\n]{1,500}:\n|<file>\n"
    r"|<path>[^\n]{1,1000}</path>\n<type>\w{1,20}</type>\n<(?:content|entries)>\n"
)
_BELOW = lazy_compile(
    r"\n{1,2}(?:\((?:End of file|Showing lines|Output capped|\d{1,9} entries)[^\n]{0,200}\)\n"
    r"</(?:content|entries|file)>"
    r"|\[(?:\d{1,9} more lines in file|Showing lines \d|Output truncated)[^\n]{0,300}\]"
    r"|\.\.\. \(\d{1,9} more lines not shown[^\n]{0,100}\))\s{0,4}\Z"
)
_TOTAL = lazy_compile(r"Total output lines: (\d{1,9})\n\n?")  # Codex, above a partial output
_TRUNCATION_NOTES: Final = ("<persisted-output>", "Output too large", "...output truncated")
_COMMAND = lazy_compile(r"Command: (?:\S*/)?(?:(?:ba|z)?sh -l?c )?(.{1,400})")
_RUNNING = lazy_compile(r"^Process running with session ID (\S{1,40})", re.MULTILINE)
_ERROR_PATTERN = lazy_compile(
    r"error|exception|traceback|fail|fatal|panic|denied|not found|no such|cannot|could not|abort"
    r"|undefined|unexpected|expected|rejected|refused|doesn't want|the user said|assert"
    r"|\bshould\b|\bgot\b|^\s*[×✕✗✘E] |^\s*> {2}",  # npm's command echo has one space there
    re.IGNORECASE,
)
# Each informative ASCII line contains one of these: fast to search.
_ERROR_WORDS = (
    "error", "fail", "except", "traceback", "fatal", "panic", "denied", "not", "no such", "abort",
    "undefined", "expected", "rejected", "refused", "t want", "the user said", "assert", "should",
    "got",
)  # fmt: skip
_PROGRESS = lazy_compile(r"\S{0,299}[^\s:] [.sx]+ *(?:\[ *\d{1,3}%\])?")
_RULES = "=-─━═_*~ "  # characters of drawn rules
_UNSAYING = lazy_compile(r"[^\w\n]*|</?[\w-]{1,40}>|`{3}\w{0,20}|> .*")  # lines that end no report
_FILE_POSITION = lazy_compile(r"[\w./-]{1,200}\.\w{1,8}:\d+\b")  # as tools print it
_SUMS_UP = lazy_compile(
    r"\b\d+ (?:passed|failed|pass|fail|passing|failing|tests?|examples?|skipped|errors?|warnings?|"
    r"issues?|problems?|failures?)\b|^(?:ok|PASS|FAIL|DONE)\b|^Tests?:|^test result:|^BUILD\b"
    r"|\bFinished\b|files? changed",
    re.MULTILINE,
)
# The line that best sums a run up, of several.
_TESTED = (lazy_compile(r"\b\d+ fail"), lazy_compile(r"\b\d+ pass"), _SUMS_UP)
# Each summary line contains one of these.
_SUMMING = (
    "pass", "fail", "test", "example", "skipped", "error", "warning", "issue", "problem", "ok",
    "PASS", "FAIL", "DONE", "Test", "BUILD", "Finished", "changed",
)  # fmt: skip


class CallOutcome(Struct, frozen=True, gc=False):
    """The outcome of a call, and its output without the frame."""

    body: str
    failed: bool = False
    status: int | None = None
    running: str = ""  # the session in which it still runs
    command: str = ""  # the command, if the frame names it
    succeeded: bool = False  # known success; otherwise the outcome is unknown
    printed: int | None = None  # number of printed lines, if the body is only a part
    full_output: str = ""  # the file with the full output, if the body is only a part

    @property
    def lines(self) -> int:
        """The number of lines shown."""
        return count_lines(self.body)

    @property
    def is_truncated(self) -> bool:
        """Check whether the agent shows only some of the lines."""
        return bool(self.full_output) or (self.printed is not None and self.printed > self.lines)


class _ParsedResult(Struct, frozen=True, gc=False):
    """A result separated from its frame."""

    body: str
    status: int | None
    running: str = ""
    command: str = ""
    printed: int | None = None


class _Metadata(Struct):
    exit_code: int | None = None


class _Wrapped(Struct):
    output: str
    metadata: _Metadata | None = None


_WRAPPED = msgspec.json.Decoder(_Wrapped)


def count_lines(text: str) -> int:
    """The number of lines in a text; a final line break does not start another."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def parse_outcome(text: str, flagged: bool, kind: ToolKind) -> CallOutcome:
    """Parse the outcome of a call; `flagged` means that its sender flagged it as failed."""
    kept = full_output_path(text)
    text = _strip_notes(text) if kind == "read" else strip_color(text)
    if kept and text.startswith(_TRUNCATION_NOTES):
        text = split_frame(text).body
    opened = _parse_json_result(text) if text.startswith("{") else _parse_enclosed_result(text)
    if opened is None:
        opened = _parse_framed_result(text)
    failed = flagged or _is_failed(opened, kind)
    known = opened.status == 0 or (kind == "write" and is_write_confirmed(opened.body))
    well = known and not failed
    return CallOutcome(
        body=opened.body,
        failed=failed,
        status=opened.status,
        running=opened.running,
        command=opened.command,
        succeeded=well,
        printed=opened.printed,
        full_output=kept,
    )


def _strip_notes(text: str) -> str:
    """A file without the notes above and below it; outcomes of commands stay."""
    if _OPENED.match(text):
        return text
    shown = _SHOWN.match(text)
    start, end = shown.end() if shown else 0, len(text) - len(split_frame(text).note)
    is_noted = _ends_with(text, end, ">])")
    below = _BELOW.search(text, max(start, end - _HEAD_CHARS), end) if is_noted else None
    return text[start : below.start() if below else end]


def _parse_json_result(text: str) -> _ParsedResult | None:
    """Parse an output in a JSON object beside its exit code."""
    if '"metadata"' not in text[-_TAIL_CHARS:]:
        return None
    try:
        found = _WRAPPED.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return _ParsedResult(found.output, found.metadata.exit_code if found.metadata else None)


def _parse_enclosed_result(text: str) -> _ParsedResult | None:
    """Parse an output above or between lines that report its outcome."""
    opened = _OPENED.match(text)
    if opened is None:
        if not _ends_with(text, len(text), ">]"):
            return None
        tail = text[-_TAIL_CHARS:].lower()
        if tail.isascii() and "exit" not in tail and "returncode" not in tail:
            return None  # a number at the end: most that end like that
    closed = (_NOTED if opened else _CLOSED).search(text, max(0, len(text) - _TAIL_CHARS))
    if closed is None:
        return None
    ended = _ENDED.search(closed[0]) or (_ENDED.search(opened[0]) if opened else None)
    if opened is None and ended is None:
        return None
    start = 0 if opened is None else min(opened.end(), closed.start())
    return _ParsedResult(text[start : closed.start()], _status(ended))


def _ends_with(text: str, end: int, signs: str) -> bool:
    """Check whether a text ends with a digit or one of these signs, blanks aside."""
    last = text[max(0, end - _MAX_BLANK_CHARS - 1) : end].rstrip()[-1:]
    return last in signs or last.isdecimal() if last else False


def _parse_framed_result(text: str) -> _ParsedResult:
    """Parse an output below lines that report its outcome."""
    head = text[:_HEAD_CHARS]
    frame = _FRAME.search(head) if "Output:" in head else None
    begins = _FRAMED.search(head, frame.end()) if frame else None
    if begins is None:
        status = _STATUS.match(text)
        body = text[status.end() :].lstrip("\n") if status else text
        return _ParsedResult(body, _status(status))
    status = _STATUS.search(text, 0, begins.start())
    running = _RUNNING.search(text, 0, begins.start())
    command = _COMMAND.match(text)
    total = _TOTAL.match(text, begins.end())
    return _ParsedResult(
        body=text[total.end() if total else begins.end() :],
        status=_status(status),
        running=running[1] if running else "",
        command=command[1] if command else "",
        printed=int(total[1]) if total else None,
    )


def _status(found: re.Match[str] | None) -> int | None:
    return int(found[1] or found[2]) if found else None


def _is_failed(opened: _ParsedResult, kind: ToolKind) -> bool:
    """Check whether a call reports its own failure; a file's content does not count."""
    if kind == "search":
        return opened.status is not None and opened.status > 1
    if opened.status:
        return True
    if kind == "write":
        return is_write_refused(opened.body)
    if kind != "run":
        return False
    tail = opened.body[-_TAIL_CHARS:]
    lower = tail.lower()
    last = _STATUS.search(tail) if "exit" in lower else None
    if last and _status(last):
        return True
    return has_failed_ending(tail)


def error_line_numbers(
    body: str, budget: int, limit: int, longest: int = _MAX_LINE_CHARS
) -> list[int]:
    """The numbers of the first lines that say what went wrong, or else of the last lines.

    As many as fit the budget; each line takes at most `longest` characters.
    """
    lines = body.split("\n")[:_MAX_LINES]
    found: list[int] = []
    for is_informative in (_is_error_line, _has_file_position):
        for number, line in enumerate(lines):
            is_error = is_informative(line[:_MAX_LINE_CHARS]) or (
                number and _is_error_heading(lines[number - 1])
            )
            if is_error and number not in found and not _is_progress(line):
                budget -= min(len(line), longest) + 1
                if len(found) == limit or (budget < 0 and found):
                    return sorted(found)
                found.append(number)
    if found:
        return sorted(found)
    return [n for n in range(max(0, len(lines) - 2), len(lines)) if lines[n].strip()]


def _is_error_line(line: str) -> bool:
    """Check whether a line says that something went wrong."""
    if line.isascii() and line.lstrip()[:1] not in ("E", "e", ">"):
        small = line.lower()
        if not any(word in small for word in _ERROR_WORDS):
            return False
    return _ERROR_PATTERN.search(line) is not None


def _is_error_heading(line: str) -> bool:
    """Check whether a line only announces an error, which OpenHands prints on the next line."""
    return line.rstrip().upper() in ("ERROR:", "ERRORS:", "FAILED:", "FATAL:")


def _is_progress(line: str) -> bool:
    """Check whether a line only shows progress: dots after a name."""
    return line[-2:].strip(" ") in (".", "..", "%]", "x", "s") and bool(_PROGRESS.fullmatch(line))


def _has_file_position(line: str) -> bool:
    """Check whether a line names a position in a file."""
    return ":" in line and _FILE_POSITION.search(line) is not None


def _is_total_line(line: str) -> bool:
    """Check whether a line counts what a run did, or says how it ended."""
    return any(word in line for word in _SUMMING) and _SUMS_UP.search(line) is not None


def first_error(body: str, budget: int) -> str:
    """The first line that says what went wrong; a count of errors only as a last resort."""
    line = " ".join(error_line(body).split())
    if not _is_total_line(line):
        return clip_text(line, budget)
    lines = body.split("\n")
    found = [" ".join(lines[number].split()) for number in error_line_numbers(body, 2_000, 8)]
    better = [line for line in found if not _is_total_line(line)]
    return clip_text((better or [line])[0], budget)


def count_line(body: str, budget: int) -> str:
    """The line with counts among the last ones; empty if there is none."""
    line = final_line(body, budget)
    return line if _is_total_line(line) else ""


def error_lines(body: str, budget: int, limit: int) -> list[str]:
    """The error lines, clipped if too long."""
    lines = body.split("\n")
    return [
        clip_text(lines[number].rstrip(), budget)
        for number in error_line_numbers(body, budget, limit)
    ]


def final_line(body: str, budget: int) -> str:
    """The line that sums a run up: one with counts, else the last informative one."""
    start = body.rfind("\n", 0, max(0, len(body) - _TAIL_CHARS)) + 1
    lines = [line[:_MAX_LINE_CHARS].strip(_RULES) for line in body[start:].split("\n")]
    tail = [line for line in lines if not _UNSAYING.fullmatch(line)]
    if not tail:
        return ""
    sums = [line for line in reversed(tail[-_LAST_LINES:]) if _is_total_line(line)]
    best = (line for pattern in _TESTED for line in sums if pattern.search(line))
    return clip_text(" ".join(next(best, tail[-1]).split()), budget)


def opening_text(body: str, budget: int) -> str:
    """The first words of a report: its heading, if any, and the first line below it."""
    opening: list[str] = []
    for line in body[:_HEAD_CHARS].split("\n"):
        text = " ".join(line.split())
        if not text.strip("#*-= "):
            continue
        opening.append(text.strip("#* ") if text.startswith("#") else text)
        if not text.startswith("#") or len(opening) > 1:
            break
    return clip_text(": ".join(opening), budget)


def clip_text(text: str, budget: int) -> str:
    """A text clipped to the budget, between words if possible."""
    if len(text) <= budget:
        return text
    cut = text[: max(budget - 1, 0)]
    border = cut.rfind(" ")
    return (cut[:border] if border > budget // 2 else cut).rstrip(" ,;:") + "…"


def argument_strings(arguments: str) -> dict[str, str]:
    """The string arguments of a call, by name; a list of words is one string."""
    if not arguments.startswith("{"):
        return {}
    try:
        found: object = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError):
        return {}
    if not isinstance(found, dict):
        return {}
    texts: dict[str, str] = {}
    for name, value in cast(dict[str, object], found).items():
        if isinstance(value, str):
            texts[name] = value
        elif isinstance(value, list) and all(
            isinstance(one, str) for one in cast(list[object], value)
        ):
            texts[name] = " ".join(cast(list[str], value))
    return texts
