"""Failure of a call: detection, and the line that names its cause."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from ..cache_scope import scoped_cache
from ..regex import lazy_compile

# Characters of an open error; a longer one keeps the lines that explain it.
MAX_OPEN_ERROR_CHARS: Final = 4_000

# Searched characters: agents report the outcome at the start or the end.
_HEAD_CHARS, _TAIL_CHARS = 400, 1_000
_MAX_LINE_CHARS = 160  # characters kept of an informative line
_SEARCHED_CHARS = 20_000  # characters searched from either end

# Failure reports of Codex, Claude Code, Gemini CLI, OpenHands, mini-swe-agent, and their JSON.
_EXIT = lazy_compile(
    r"exited with (?:exit )?(?:code|status)[: ]{1,2}(-?\d{1,10})"
    r"|exit[ _-]?(?:code|status)[\"']?(?:[: ]|: )[\"']?(-?\d{1,10})"
    r"|<(?:exit_?code|returncode)>\s{0,4}(-?\d{1,10})",
    re.IGNORECASE,
)
_ERROR_OPENING = lazy_compile(
    r"\s{0,8}(?:<(?:tool_use_)?error>|[\w.]{0,60}(?:error|exception)\s?:|fatal\s?:|panic\s?:"
    r"|traceback \(most recent)",
    re.IGNORECASE,
)
_COLOR = lazy_compile(r"\x1b\[[0-9;:]{0,30}[mK]")
_COUNTED = lazy_compile(
    r"\b[1-9]\d{0,6} (?:fail(?:ed|ing|ures?)?|errors?|issues?|problems?)\b"
    r"|\bfailures?=[1-9]|\berrors=[1-9]|\bfail(?:ed|ures?)?[:(] ?[1-9]|test result: failed"
    r"|^(?:--- )?fail(?:ed)?\b|\*\*\* \[.{1,80}\] error \d|npm err(?:!|or\b)"
    r"|could not compile|\berror ts\d"
    r"|build failed",
    re.MULTILINE,
)
# Lines that report no failure despite their words: ruff's fixes, eslint's warnings, Gemini CLI's
# frame, commit titles.
_SETTLED = lazy_compile(
    r"\b\d{1,7} errors? \(\d{1,7} fixed, 0 remaining\)"
    r"|\b\d{1,7} problems? \(0 errors,[^)\n]{0,80}\)|^Error: \(none\)$"
    r"|^(?:\[[\w./()# -]{1,200} [0-9a-f]{7,40}\]|HEAD is now at|Saved working directory)[^\n]*",
    re.IGNORECASE | re.MULTILINE,
)
_NONE = r"(?![\w ]{0,12}[:=( ]{1,3}(?:0|none)\b)"  # behind a word of failure: none was there
_ENDS_FAILED = lazy_compile(
    rf"^(?:--- )?FAIL(?:ED|URES)?\b{_NONE}"
    r"|\b[1-9]\d* (?:tests? )?(?:failed|failures?|failing|fail|errors?)\b"
    r"|\bfailures?[:=] ?[1-9]|\berrors[:=] ?[1-9]|^[#ℹ] fail [1-9]|^errors!|\bbuild failure\b"
    r"|^not ok \d(?!.*# ?(?:todo|skip))|^\*\* \w{1,20} failed \*\*|\bfailed in \d|\.{3}failed$"
    r"|\bfail code \d",
    re.IGNORECASE | re.MULTILINE,
)
_CRASHED = lazy_compile(
    rf"^(?:error|fatal|panic|traceback)\b{_NONE}|^error\[|command not found|command failed"
    r"|build failed|ERROR task failed|\*\*\* \[.{1,80}\] error \d|^npm err(?:!|or\b)"
    r"|could not compile"
    r"|\berror TS\d|^\S{1,200}:\d{1,7}:\d{1,5}: (?:fatal )?error:"
    r"|^thread '.{0,80}' .{0,40}panicked at|^exception in thread|^(?:php )?(?:fatal|parse) error:"
    r"|^segmentation fault|undefined reference to|^make(?:\[\d+\])?: \*\*\* |^[│|] error:"
    r"|^\s{0,4}× no solution|^\S{1,200}\.rb:\d{1,7}:in .{1,300}\(\w{1,80}\)$|^conflict \("
    r"|^automatic merge failed",
    re.IGNORECASE | re.MULTILINE,
)
_CRASHED_GO = lazy_compile(r"^\S{1,200}\.go:\d{1,7}:\d{1,5}: \S", re.MULTILINE)  # it prints no more
# Failures that only the last lines report: above them, such a line may be one of many.
_LAST_LINES = 6
_LAST_FAILED = lazy_compile(
    r"^\s{0,12}[✗✘✖✕×❌] ?(?!0 )\w"
    rf"|^\s{{0,12}}\[?(?:fail(?:ed|ure)?|error|fatal|critical)\b{_NONE}"
    r"(?:\]|:| {2}| (?=\S{1,200}$))"
    r"|(?:\.\.\.|:| -) ?fail(?:ed|ure)?[.!]?$"
    r"|(?<!\bno )(?<!\b0 )\b(?:tests?|builds?|checks?|suites?) (?:has |have )?failed\b(?! ?[:=(])"
    r"|^(?:\S{1,200}: (?:line \d{1,7}: +)?(?:\d{1,9} )?)?(?:killed|terminated|aborted|bus error"
    r"|illegal instruction|segmentation fault|out of memory)(?: {0,3}\(core dumped\))?\s{0,8}$"
    r"|: line \d{1,7}: +\d{1,9} (?:killed|terminated|aborted|segmentation fault|bus error)\b"
    r"|^(?:(?:command|test|process|operation) )?timed out\b(?! ?[:=])|\btimed out after \d"
    r"|\bassertion\b.{0,200}\bfailed\b"
    r"|^(?:uncaught )?(?:[\w.$]{1,100}\.)?\w{0,60}(?:error|exception): (?!(?:0|none)\b|\(none\))\S"
    r"|^unhandled exception|^err! \S",
    re.IGNORECASE | re.MULTILINE,
)
# Words of a line that may report a failure, and lines that have them and report none.
_MAY_FAIL = lazy_compile(
    r"\b(?:fail\w{0,5}|error\w{0,1}|\w{1,60}(?:error|exception)|exception|fatal|panic\w{0,3}|killed"
    r"|time(?:d |-)?out|denied|not found|no such|cannot|could not|unable|abort\w{0,2}"
    r"|mismatch\w{0,2}|critical|wrong|invalid|broken|crash\w{0,2}|out of memory|core dumped"
    r"|not ok)\b|[✗✘✖✕×❌]",
    re.IGNORECASE,
)
_MAY_FAIL_HINTS = (  # each match in ASCII has one of these
    "fail", "error", "exception", "fatal", "panic", "killed", "time", "denied", "not found",
    "no such", "cannot", "could not", "unable", "abort", "mismatch", "critical", "wrong", "invalid",
    "broken", "crash", "out of memory", "core dumped", "not ok",
)  # fmt: skip
_NOT_FAILED = lazy_compile(
    r"\b(?:0|no|none|without|zero) (?:\w{1,20} ){0,2}(?:fail|error|issue|problem|timed|time)\w{0,6}"
    r"|\b(?:fail|error|timed? ?out|killed)\w{0,6}[ \w]{0,12}[:=( ]{1,3}(?:0|none)\b"
    r"|^\W{0,8}(?:ok|pass(?:ed)?|[✓✔√])\b|^\s{0,12}[✓✔√✅]|\b(?:ok|pass(?:ed)?)\W{0,12}$",
    re.IGNORECASE,
)
# Summaries of passed tests; error lines above them may be expected ones.
_PASSED = lazy_compile(
    r"\b0 fail(?:ed|ures?|ing)?\b|\b\d+ pass(?:ed|ing)?\b|\btest result: ok\b", re.IGNORECASE
)
_PASS_WORDS = ("pass", "test result")  # each of those contains one of these, or "fail"
# Each failure pattern contains one of these.
_FAILURE_HINTS = (
    "error", "fatal", "panic", "traceback", "fail", "not found", "npm err", "not compile", ".go:",
    "not ok", "exception", "fault", "undefined", "***", "no solution", ".rb:", "conflict",
    "✗", "✘", "✖", "✕", "×", "❌", "killed", "terminated", "aborted", "illegal instruction",
    "out of memory", "timed out", "critical", "err!",
)  # fmt: skip
# Each match of a pattern contains one of these, in a text without capital letters.
_ENDS_FAILED_HINTS = ("fail", "error", "not ok")
_CRASHED_HINTS = (
    "error", "fatal", "panic", "traceback", "not found", "command failed", "build failed",
    "npm err", "not compile", "exception", "fault", "undefined", "***", "no solution", ".rb:",
    "conflict", "merge failed",
)  # fmt: skip
_LAST_FAILED_HINTS = (
    "fail", "error", "fatal", "critical", "killed", "terminated", "aborted", "illegal instruction",
    "fault", "out of memory", "timed out", "exception", "err! ", "✗", "✘", "✖", "✕", "×", "❌",
)  # fmt: skip
_FAILURE_WORDS = ("fail", "error", "issue", "problem", "npm err", "could not compile")
_REFUSED = lazy_compile(
    r"\bthe user (?:said|doesn't want|does not want|rejected|declined)|(?:rejected|denied|declined)"
    r" by (?:the )?user"
)
# First lines of refused writes: not all wires have an error flag.
_NOT_WRITTEN = lazy_compile(
    r"^\W{0,4}(?:error|fail(?:ed|ure)|fatal|cannot|could not|unable|invalid|exception|traceback|"
    r"permission denied|e[a-z]{3,12}: |tool_use_error|no (?:match|replacement|such|changes)\b|"
    r"(?:operation|execution|tool call) (?:was )?(?:cancel|abort|fail)|the tool execution failed|"
    r"(?:the )?user (?:rejected|denied|declined|cancelled|doesn't|does not)|"
    r"found (?:\d{1,6}|multiple) (?:matches|occurrences)|your (?:proposed )?edit has introduced)"
    r"|\bnot found\b|verification failed|\bnot been (?:read|replaced|applied|made)\b"
    r"|malformed patch|been modified since|does not exist|did not (?:appear|match)"
    r"|was not (?:applied|performed)"
    r"|(?:rejected|denied|cancell?ed|declined) by (?:the )?user",
    re.IGNORECASE,
)
_ERROR_RECORD = lazy_compile(r"\{\s{0,8}\"errors?\"", re.IGNORECASE)
_WRITTEN = lazy_compile(
    r"\b(?:success\w{0,10}|updated|created|edited|written|wrote|applied|replaced|saved|added|done"
    r"|modified|deleted|removed|moved|renamed|changed|inserted|ok)\b",
    re.IGNORECASE,
)
_UNFINISHED = lazy_compile(
    r"running (?:with session|in (?:the )?background)(?: with)?(?: ID)?:? {0,2}([\w-]{0,60})",
    re.IGNORECASE,
)
_SUCCESS = lazy_compile(
    r"\b(?:ok|pass(?:ed|es|ing)?|succe\w{2,12}|done|up.to.date|0 (?:fail\w{0,5}|errors?|issues?"
    r"|problems?)|no (?:errors|issues|problems|fixes)|all checks)\b",
    re.IGNORECASE,
)
_HEADING = lazy_compile(r"[\w ]{0,20}(?:error|failed|failure|exception)\W{0,3}:", re.IGNORECASE)
_ERROR_LINES = (
    lazy_compile(
        r"^E {2,}\S.*|^\s{0,8}[\w.]{0,80}(?:Error|Exception)\b: ?\S.*"
        r"|^\s{0,8}\S{1,200}\.\w{1,8}[:(]\d{1,7}(?:[:,]\d{1,5})?\)?: \S.*"
        r"|^\s{0,8}error(?:\[\w{1,12}\])?: .*|^.{0,200}\berror TS\d.*|^fatal: .*|^panic: .*"
        r"|^\s{0,8}(?:--- )?FAIL(?:ED)?:?\s+\S.*|^\s{0,8}[×✗✘✖] \S.*|^npm (?:ERR!|error) \S.*"
        r"|^.{0,200}(?:command not found|No such file or directory).*",
        re.MULTILINE,
    ),
    lazy_compile(
        r"^(?!\$ ).{0,300}\b(?:error|exception|failed|failure|fatal|denied|not found|cannot|unable)"
        r"\b.{0,300}(?<!\{)$",
        re.MULTILINE | re.IGNORECASE,
    ),
)


def is_failed(text: str, error: bool) -> bool:
    """Check whether a result is that of a failed call, by its flag or its text.

    An exit code decides; without one, the beginning of the text. Some wires have no flag.

    >>> is_failed("Process exited with code 1\\nOutput:", False), is_failed("exit code: 0", False)
    (True, False)
    """
    if error:
        return True
    code = exit_code(text)
    return (
        _ERROR_OPENING.match(strip_color(text[:_HEAD_CHARS])) is not None
        if code is None
        else code != 0
    )


def exit_code(text: str) -> int | None:
    """The exit code named near the start or the end of a result."""
    found = None
    head = text[:_HEAD_CHARS]
    if "xit" in head or "returncode" in head:
        found = _EXIT.search(head)
    if found is None and len(text) > _HEAD_CHARS:
        tail = text[-_TAIL_CHARS:]
        if "xit" in tail or "returncode" in tail:
            found = next(reversed([*_EXIT.finditer(tail)]), None)
    return None if found is None else int(found[1] or found[2] or found[3])


def strip_color(text: str) -> str:
    """A text without color codes, which would hide word boundaries.

    >>> strip_color("\\x1b[31m2 failed\\x1b[39m")
    '2 failed'
    """
    return _COLOR.sub("", text) if "\x1b" in text else text


def has_failure_count(text: str) -> bool:
    """Check whether the end of a run's output counts failures; a pipe may hide the exit code."""
    tail = _SETTLED.sub("", strip_color(text[-_TAIL_CHARS:])).lower()
    return any(word in tail for word in _FAILURE_WORDS) and _COUNTED.search(tail) is not None


def has_failed_ending(text: str) -> bool:
    """Check whether the end of a run's output reports a failure, by a count or otherwise."""
    return _ends_in_failure(text[-_TAIL_CHARS:])


@scoped_cache(512)  # of at most _TAIL_CHARS characters each
def _ends_in_failure(tail: str) -> bool:
    """Check whether the last lines of an output report a failure."""
    tail = _SETTLED.sub("", strip_color(tail)).lower()
    if not _has_any(tail, _FAILURE_HINTS):
        return False
    lines = _lines_with(tail, (*_FAILURE_HINTS, *_PASS_WORDS))
    if _has_any(lines, _ENDS_FAILED_HINTS) and _ENDS_FAILED.search(lines) is not None:
        return True
    well = _end_of_passed(lines)
    if _has_any(lines, _CRASHED_HINTS) and _CRASHED.search(lines, well) is not None:
        return True
    if ".go:" in lines and _CRASHED_GO.search(lines, well) is not None:
        return True
    last = _lines_with(_last_lines(tail), (*_FAILURE_HINTS, *_PASS_WORDS))
    if not _has_any(last, _LAST_FAILED_HINTS):
        return False
    return _LAST_FAILED.search(last, _end_of_passed(last)) is not None


def _end_of_passed(lines: str) -> int:
    """The end of the last summary of passed tests."""
    return max((found.end() for found in _PASSED.finditer(lines)), default=0)


def _has_any(text: str, words: Sequence[str]) -> bool:
    return any(word in text for word in words)


def _last_lines(text: str) -> str:
    """The last lines that are not blank."""
    return "\n".join([line for line in text.split("\n") if line.strip()][-_LAST_LINES:])


def failure_hint(text: str) -> str:
    """The first of a run's last lines that may report a failure; empty if none does.

    >>> failure_hint("building\\nE: Unable to locate package x"), failure_hint("0 errors")
    ('E: Unable to locate package x', '')
    """
    return _failure_hint(text[-_TAIL_CHARS:])


@scoped_cache(128)  # of at most _TAIL_CHARS characters each
def _failure_hint(tail: str) -> str:
    last = _last_lines(_SETTLED.sub("", strip_color(tail)))
    if last.isascii() and not _has_any(last.lower(), _MAY_FAIL_HINTS):
        return ""
    for line in last.split("\n"):
        if _MAY_FAIL.search(line) and not _NOT_FAILED.search(line):
            return " ".join(line.split())
    return ""


def _lines_with(text: str, words: Sequence[str]) -> str:
    """The lines that contain one of these words, to limit what patterns search."""
    found: set[tuple[int, int]] = set()
    for word in words:
        at = text.find(word)
        while at >= 0:
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            found.add((text.rfind("\n", 0, at) + 1, end))
            at = text.find(word, end)
    return "\n".join(text[start:end] for start, end in sorted(found))


def is_success(text: str) -> bool:
    """Check whether the end of a run's output reports success."""
    tail = strip_color(text[-_TAIL_CHARS:])
    unsaid = has_failure_count(text) or has_failed_ending(text)
    return _SUCCESS.search(tail) is not None and not unsaid


def is_write_refused(text: str) -> bool:
    """Check whether the result of a write says that nothing was written.

    >>> is_write_refused("File has not been read yet.")
    True
    >>> is_write_refused("The file /w/a.py has been updated.")
    False
    """
    line = _first_line(text)
    if line[:1] == "{":  # a record: its words do not matter
        return _ERROR_RECORD.match(line) is not None
    failed_word = re.search(r"(?<![\w/.])failed(?![\w/.])", line, re.IGNORECASE)
    return _NOT_WRITTEN.search(line) is not None or (
        failed_word is not None and not is_write_confirmed(text)
    )


def is_write_confirmed(text: str) -> bool:
    """Check whether the result of a write says that it was made."""
    line = _first_line(text)
    if line[:1] == "{":
        return False
    return _NOT_WRITTEN.search(line) is None and _WRITTEN.search(line) is not None


def _first_line(text: str) -> str:
    return strip_color(text[:_HEAD_CHARS]).strip().partition("\n")[0]


def is_failed_call(text: str, error: bool, kind: str) -> bool:
    """Check whether a call of this kind failed, judging by its result."""
    if is_failed(text, error):
        return True
    if kind == "run":  # a pipe hides the exit code, but not the last output
        return has_failed_ending(text)
    return kind == "write" and is_write_refused(text)


def running_session(text: str) -> str | None:
    """The session of a command that is still running; "" if it has no name, None if not running.

    >>> running_session("Process running with session ID 91912"), running_session("done")
    ('91912', None)
    """
    head = text[:_HEAD_CHARS]
    found = _UNFINISHED.search(head) if "unning" in head else None
    return None if found is None else found[1]


def is_user_refusal(text: str) -> bool:
    """Check whether a person stopped the call; their words are not an error."""
    head = text[:_TAIL_CHARS].lower()
    return "user" in head and _REFUSED.search(head) is not None


def error_line(text: str) -> str:
    """The line that best says what went wrong: a cause, a count, or the first informative one."""
    searched = strip_color(
        text
        if len(text) <= 2 * _SEARCHED_CHARS
        else f"{text[:_SEARCHED_CHARS]}\n{text[-_SEARCHED_CHARS:]}"
    )
    for pattern in _ERROR_LINES:
        for found in pattern.finditer(searched):
            line = found[0].strip()
            if _is_informative(line):
                return line
    lines = [line.strip() for line in searched.split("\n") if line.strip()]
    counts = (line for line in lines if _COUNTED.search(line.lower()))
    informative = (line for line in lines if _is_informative(line))
    return next(counts, None) or next(informative, "".join(lines[:1]))


def _is_informative(line: str) -> bool:
    """Check whether a line says more than that a command ended or an error follows."""
    return _EXIT.search(line) is None and _HEADING.fullmatch(line) is None


def clip_error_line(line: str) -> str:
    """A line clipped to its limit, at a character boundary."""
    if len(line) <= _MAX_LINE_CHARS:
        return line
    at = _MAX_LINE_CHARS - 1
    while at and (unicodedata.combining(line[at]) or _is_joined(line, at)):
        at -= 1
    return f"{line[:at].rstrip()}…"


def _is_joined(line: str, at: int) -> bool:
    """Check whether the character here combines with the one before it."""
    return (
        line[at] in "\u200d\ufe0e\ufe0f"
        or "\U0001f3fb" <= line[at] <= "\U0001f3ff"
        or line[at - 1] == "\u200d"
    )
