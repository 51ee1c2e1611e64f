"""Labels of calls in markers: the file or command, as a model saw it, in few words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..regex import lazy_compile
from ..tools.use import Span, Use
from ..transcript import Part
from .outcome import argument_strings

_MAX_SUBJECT_CHARS: Final = 48
_MAX_COMMAND_CHARS: Final = 400  # of a command, searched for its first program
_MAX_WORD_CHARS: Final = 100  # longer words are left out
_MAX_JOINED_CHARS: Final = 96  # of two calls
_MAX_PATH_STEPS: Final = 3  # the call itself has the whole path
_PATTERN_ARGUMENTS: Final = ("pattern", "query", "regex", "search", "q", "glob")
_COMMAND_ARGUMENTS: Final = ("command", "cmd", "commands")
_DESCRIPTION = lazy_compile(
    r"the (?P<noun>read|write|edit|run) of (?P<subject>(?:lines \d+-\d+ of )?(?P<file>.*))"
)
_SHELL = lazy_compile(r"^(?:/\S*/)?(?:ba|z|da)?sh -l?c ['\"]?")
_COMMAND_PIECE = lazy_compile(r"'[^']*'?|\"(?:[^\"\\]|\\.)*\"?|[|;&\n]|<<|[^|;&\n'\"<]+|<")
_SET_UP = lazy_compile(r"(?:cd|export|set|source|\.)\s|\w+=\S*$")  # commands before the one meant
_SENSITIVE = r"[\w-]*(?:key|token|secret|passw|pwd|auth|credential)[\w-]*"
_SENSITIVE_WORD = lazy_compile(
    rf"-*{_SENSITIVE}[=:].+"  # by its name
    r"|(?:sk|pk|rk|gh[a-z]|glpat|xox[a-z]|AKIA|eyJ)[-_A-Za-z0-9]{8,}.*"  # by its beginning
    r"|(?=[^/.]*\d)(?=[^/.]*[A-Za-z])[A-Za-z0-9+_=-]{20,}"  # by its look
    r"|[^/@\s]*:[^/@\s]+@.*",  # with a user's name
    re.IGNORECASE,
)
_BEFORE_SENSITIVE = lazy_compile(
    rf"-+{_SENSITIVE}|{_SENSITIVE}[=:]|bearer|basic|-[aApPuU]", re.IGNORECASE
)


def call_subject(call: Part, use: Use) -> str:
    """The file, command or pattern of a call; empty if none is known.

    Words that look like secrets are left out.
    """
    return _file_subject(call, use) or _words_subject(call, use)


def describe_call(call: Part, use: Use) -> str:
    """A call for a sentence of a marker: by file or command, else by its tool."""
    if subject := _file_subject(call, use):
        is_edit = use.kind == "write" and not use.replaces
        return f"the {'edit' if is_edit else use.kind} of {subject}"
    subject, tool = (
        _words_subject(call, use),
        _clip_end(" ".join(call.name.split()), _MAX_SUBJECT_CHARS),
    )
    if not subject:
        return f"the result of {tool or 'a call'}"
    if use.in_shell:
        return f"the run of {subject}"
    if use.kind == "search":
        return f"the search for {subject}"
    return f"the result of {tool or 'a call'} ({subject})"


def join_descriptions(names: Sequence[str]) -> str:
    """Descriptions of one or two calls, in few words; of more only if they are of one kind.

    >>> join_descriptions(["the read of warp.py", "the edit of warp.py"])
    'the read and the edit of warp.py'
    >>> join_descriptions([f"the read of lines {n}-{n + 9} of weft.py" for n in (1, 21, 41)])
    '3 reads of weft.py'
    """
    once = list(dict.fromkeys(names))
    found = [_DESCRIPTION.fullmatch(name) for name in once]
    parsed = [one for one in found if one is not None]
    nouns = list(dict.fromkeys(one["noun"] for one in parsed)) if all(found) else []
    joined = _join_two(once, parsed, nouns) if len(once) == 2 else once[0]
    if len(once) == 1 or (len(once) == 2 and len(joined) <= _MAX_JOINED_CHARS):
        return joined
    files = {one["file"] for one in parsed}
    is_one_kind = len(nouns) == len(files) == 1
    return f"{len(names)} {f'{nouns[0]}s of {files.pop()}' if is_one_kind else 'calls'}"


def _join_two(names: Sequence[str], parsed: Sequence[re.Match[str]], nouns: Sequence[str]) -> str:
    """Two descriptions with what they share said once."""
    if len(nouns) == 1:
        return f"the {nouns[0]}s of {' and '.join(one['subject'] for one in parsed)}"
    if len(nouns) == 2 and parsed[0]["subject"] == parsed[1]["subject"]:
        return f"the {nouns[0]} and the {nouns[1]} of {parsed[0]['subject']}"
    return " and ".join(names)


def short_path(path: str, max_chars: int = _MAX_SUBJECT_CHARS) -> str:
    """The last steps of a path; a URL without its query and its user.

    >>> short_path("/home/me/loom/src/cloth.py"), short_path("https://me@loom.org/a?token=1")
    ('loom/src/cloth.py', 'https://loom.org/a')
    """
    scheme, mark, rest = path.partition("://")
    if mark:
        host, slash, way = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
        return _clip_end(f"{scheme}://{host.rpartition('@')[2]}{slash}{way}", max_chars)
    steps = path.strip("/").split("/")
    if len(steps) > _MAX_PATH_STEPS:
        path = "/".join(steps[-_MAX_PATH_STEPS:])
    while len(path) > max_chars and "/" in path.strip("/"):
        path = path.strip("/").partition("/")[2]
    return path if len(path) <= max_chars else f"..{path[2 - max_chars :]}"


def _file_subject(call: Part, use: Use) -> str:
    """The file that a call reads or writes, with its lines; empty if it is none."""
    spans = use.writes if use.kind == "write" else use.reads
    first = next(iter(spans), None)
    if first is None or use.kind not in ("read", "write"):
        return ""
    if use.kind == "read" and any(span.part for span in spans):
        return ""
    more = f" and {len(spans) - 1} more" if len(spans) > 1 else ""
    before, after = ("", more) if more else _line_words(first, call.text)
    left = _MAX_SUBJECT_CHARS - len(before) - len(after)
    return f"{before}{short_path(first.path, left)}{after}"


def _line_words(span: Span, arguments: str) -> tuple[str, str]:
    """The words before and after a path that name the lines, if the call named them.

    A last line that follows from a tool's own limit is not named.
    """
    if span.lines is None or span.part:
        return "", ""
    first, last = span.lines
    if str(last) in arguments or str(last - first + 1) in arguments:
        return f"lines {first}-{last} of ", ""
    return "", f" from line {first}" if first > 1 else ""


def _words_subject(call: Part, use: Use) -> str:
    """The command or pattern of a call; otherwise its target."""
    texts = argument_strings(call.text)
    command = next((texts[name] for name in _COMMAND_ARGUMENTS if texts.get(name)), "")
    target = use.target or ""
    if use.kind == "search" and use.in_shell:
        target = _first_command(command) or target
    elif use.kind == "search":
        target = next((texts[name] for name in _PATTERN_ARGUMENTS if texts.get(name)), target)
    if target.isdigit():
        return ""  # of a process
    hidden = _secrets(command if use.in_shell else target)
    words = (_without_query(word) for word in target.split() if _bare(word) not in hidden)
    return _clip_end(" ".join(words), _MAX_SUBJECT_CHARS)


def _first_command(text: str) -> str:
    """The first command of a shell's text that is not mere set-up, without what it pipes into."""
    shell = _SHELL.match(text)
    words = ""
    for found in _COMMAND_PIECE.finditer(text[shell.end() if shell else 0 :][:_MAX_COMMAND_CHARS]):
        if found[0] not in ("|", ";", "&", "\n", "<<"):
            words += found[0]
        elif words.strip() and not _SET_UP.match(words.strip()):
            break
        else:
            words = ""
    return words.strip()


def _secrets(text: str) -> set[str]:
    """The words that look like secrets, and those that follow a secret's name."""
    found: set[str] = set()
    follows = False
    for word in map(_bare, text.split()):
        is_long = len(word) > _MAX_WORD_CHARS
        names_secret = not is_long and _BEFORE_SENSITIVE.fullmatch(word) is not None
        if is_long or (follows and not names_secret) or _SENSITIVE_WORD.fullmatch(word):
            found.add(word)
        follows = names_secret
    return found


def _without_query(word: str) -> str:
    return short_path(word) if "://" in word else word


def _bare(word: str) -> str:
    return word.strip("'\"")


def _clip_end(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 2].rstrip()}.."
