"""Effects of PowerShell's cmdlets, by the names that the parser gives them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ..use import END_OF_FILE
from .effects import (
    NO_EFFECT,
    UNKNOWN_EFFECT,
    Effect,
    ParsedOptions,
    PassedLines,
    ProgramCall,
    read_effect,
    run_effect,
    word_set,
    write_effect,
)
from .file_programs import CURRENT_FOLDER, print_lines
from .parser import ShellWord

if TYPE_CHECKING:
    from collections.abc import Callable

# Parameters without a value; others take the next word.
_SWITCHES: Final = word_set(
    "-raw -recurse -force -file -directory -name -hidden -casesensitive -simplematch -allmatches "
    "-list -quiet -notmatch -append -noclobber -nonewline -passthru -confirm -whatif -unique "
    "-descending -wait -asbytestream -usebasicparsing -wrap -autosize -line -word -character "
    "-noprofile -nologo -noninteractive -noexit -mta -sta -verbose -followsymlink -noemphasis"
)
_PATHS: Final = ("-path", "-literalpath", "-pspath", "-filepath", "-lp")


def _options(call: ProgramCall) -> ParsedOptions:
    """Parameters in lower case with their values, and operands."""
    flags: list[tuple[str, ShellWord | None]] = []
    operands: list[ShellWord] = []
    words = iter(call.args)
    for word in words:
        if not re.match(r"-[A-Za-z]", word.text) or not word.certain:
            operands.append(word)
            continue
        name, colon, value = word.text.lower().partition(":")
        if colon and value:
            flags.append((name, ShellWord(word.text.partition(":")[2])))
        else:
            flags.append((name, None if name in _SWITCHES else next(words, None)))
    return ParsedOptions(tuple(flags), tuple(operands))


def _files(given: ParsedOptions, skip: int = 0) -> tuple[ShellWord, ...]:
    """The paths by parameter and, after `skip` others, by place; numbers belong to parameters."""
    counts = (word for word in given.operands[skip:] if not word.text.isdecimal())
    return (*given.values(*_PATHS), *counts)


def _number(given: ParsedOptions, *names: str) -> int | None:
    """The value of a numeric parameter."""
    values = given.values(*names)
    text = values[-1].text if values and values[-1].certain else ""
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None


def get_content(call: ProgramCall) -> Effect:
    """Effect of `Get-Content`: all of a file, or its first or last lines."""
    given = _options(call)
    files = _files(given)
    head = ("-totalcount", "-first", "-head")
    if given.has("-tail", "-last") or (given.has(*head) and _number(given, *head) is None):
        return print_lines(call, files, "part")
    first = _number(given, *head)
    if first is not None:
        return print_lines(call, files, (1, first))
    return read_effect(call, files, passes="all")


def select_object(call: ProgramCall) -> Effect:
    """Effect of `Select-Object`: some of its input, counted from the start if that is known."""
    given = _options(call)
    first, skipped = _number(given, "-first"), _number(given, "-skip")
    passed: PassedLines = "part"
    counted = not given.has("-last", "-skiplast", "-index", "-property", "-unique")
    if counted and not given.operands and (first or skipped):
        start = (skipped or 0) + 1
        passed = start, (start + first - 1 if first else END_OF_FILE)
    return Effect(passed_lines=passed)


def select_string(call: ProgramCall) -> Effect:
    """Effect of `Select-String`: hits in files, or a filter."""
    given = _options(call)
    files = _files(given, skip=0 if given.has("-pattern") else 1)
    content = "listing" if given.has("-list", "-quiet") else "hits"
    return read_effect(call, files, content=content, kind="search", part=True, passes="part")


def list_items(call: ProgramCall) -> Effect:
    """Effect of `Get-ChildItem` and similar cmdlets: a listing."""
    files = _files(_options(call)) or (CURRENT_FOLDER,)
    found = read_effect(replace(call, has_input=False), files, content="listing", kind="search")
    return replace(found, passed_lines=None)


def filter_input(call: ProgramCall) -> Effect:
    """Effect of a cmdlet that passes on a part of its input, or another form of it."""
    return Effect(passed_lines="part") if call.has_input else NO_EFFECT


def pass_input(call: ProgramCall) -> Effect:
    """Effect of a cmdlet that passes all of its input on."""
    return Effect(passed_lines="all") if call.has_input else NO_EFFECT


def write_files(call: ProgramCall, value: bool = False) -> Effect:
    """Effect of `Set-Content` and similar cmdlets; with `value` the second operand is text."""
    given = _options(call)
    files = _files(given)
    whole = not given.has("-append") and call.name in ("set-content", "out-file")
    return write_effect(call, files[:1] if value else files, replaces=whole)


def tee_object(call: ProgramCall) -> Effect:
    """Effect of `Tee-Object`: writes its input and passes it on."""
    given = _options(call)
    if given.has("-variable"):
        return Effect(passed_lines="all")
    written = write_effect(call, _files(given), replaces=not given.has("-append"))
    return replace(written, passed_lines="all", content=None)


def move_items(call: ProgramCall) -> Effect:
    """Effect of `Move-Item` and `Copy-Item`: writes the target, and what it moves away."""
    given = _options(call)
    places = (*given.values("-destination", "-newname"), *_files(given))
    targets = places if call.name != "copy-item" else _copied(given)
    unsure = any(word.glob for word in places) or given.has("-recurse")
    written = write_effect(call, targets)
    return replace(written, barrier=True) if unsure else written


def _copied(given: ParsedOptions) -> tuple[ShellWord, ...]:
    named = given.values("-destination")
    return named or _files(given)[-1:]


def new_item(call: ProgramCall) -> Effect:
    """Effect of `New-Item`: a new file or folder."""
    given = _options(call)
    if given.has("-name"):
        return run_effect(call, UNKNOWN_EFFECT)
    return write_effect(call, _files(given))


def remove_items(call: ProgramCall) -> Effect:
    """Effect of `Remove-Item`."""
    given = _options(call)
    written = write_effect(call, _files(given), replaces=True)
    return replace(written, barrier=True) if given.has("-recurse", "-r") else written


def fetch(call: ProgramCall) -> Effect:
    """Effect of `Invoke-WebRequest`: a page, unless it sends or saves something."""
    given = _options(call)
    if given.has("-method", "-outfile", "-body", "-infile"):
        return run_effect(call, UNKNOWN_EFFECT)
    return read_effect(call, (*given.values("-uri"), *given.operands), content="page")


def powershell(call: ProgramCall) -> Effect:
    """Effect of `powershell -Command …`: that of its text."""
    words = list(call.args)
    while words and words[0].text.startswith("-"):
        flag = words.pop(0).text.lower()
        if "-command".startswith(flag) and len(flag) > 1:
            known = bool(words) and all(word.certain for word in words)
            text = " ".join(word.text for word in words)
            return call.run_powershell(text) if known else UNKNOWN_EFFECT
        if flag not in _SWITCHES:
            if flag not in ("-executionpolicy", "-ep", "-ex", "-workingdirectory", "-version"):
                return run_effect(call, UNKNOWN_EFFECT)
            words = words[1:]
    known = bool(words) and all(word.certain for word in words)
    return call.run_powershell(" ".join(word.text for word in words)) if known else UNKNOWN_EFFECT


def _silent(call: ProgramCall) -> Effect:
    return NO_EFFECT


def _listed(call: ProgramCall) -> Effect:
    return run_effect(call, Effect(kind="read", content="listing"))


def _same(names: str, reader: Callable[[ProgramCall], Effect]) -> dict[str, Callable[..., Effect]]:
    return dict.fromkeys(names.split(), reader)


CMDLETS: Final = {
    "get-content": get_content,
    "select-object": select_object,
    "select-string": select_string,
    "tee-object": tee_object,
    "new-item": new_item,
    **_same("invoke-webrequest invoke-restmethod", fetch),
    "remove-item": remove_items,
    **_same("move-item copy-item rename-item", move_items),
    **_same("get-childitem get-item", list_items),
    **_same("set-content add-content", partial(write_files, value=True)),
    **_same("out-file clear-content", write_files),
    **_same(
        "where-object foreach-object sort-object measure-object group-object get-unique "
        "format-hex compare-object convertfrom-json convertto-json join-string",
        filter_input,
    ),
    **_same("out-string out-host format-table format-list format-wide out-default", pass_input),
    **_same(
        "write-output write-host write-error write-warning write-verbose start-sleep out-null "
        "set-strictmode set-variable clear-host join-path split-path convert-path new-object "
        "new-timespan get-random get-location",
        _silent,
    ),
    **_same(
        "get-command get-date get-process get-filehash get-acl get-variable get-psdrive get-host "
        "get-help get-module test-path resolve-path get-itemproperty get-service",
        _listed,
    ),
    **_same("powershell powershell.exe pwsh pwsh.exe", powershell),
}

__all__: Sequence[str] = ("CMDLETS",)
