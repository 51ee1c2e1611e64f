"""Programs that edit what flows through them: `sed`, `awk`, `perl`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..effects import (
    BARRIER,
    IGNORANCE,
    SILENT,
    Call,
    Effect,
    Options,
    Passing,
    named,
    options,
    reading,
    writing,
)
from ..script import Word
from ..use import TO_THE_END, Span
from .files import limited
from .scripts import awk_writes, sed_writes

_PRINTS = re.compile(r"(\d+)(?:,(\+?\d+|\$))?p")
_QUITS = re.compile(r"(\d+)q")
_AWK_LINES = re.compile(
    r"\s*NR\s*(==|>=|>)\s*(\d+)(?:\s*(?:&&|,)\s*NR\s*(==|<=|<)\s*(\d+))?\s*(?:\{\s*print\s*;?\s*\})?\s*"
)
_SUFFIX = re.compile(r"(?:-[nErsuzplaw0]*i|--in-place=|--inplace=)([^*/]+)")
_PERL_MAY_WRITE = re.compile(
    r"system|exec|open|link|rename|mkdir|rmdir|write|truncate|chmod|chown|utime|dbm|eval|fork|kill"
    r"|sys|qx|`|>|\^I|do |require|use "
)


def sed(call: Call) -> Effect:
    """`sed`: ranges of lines where that is all it prints; `-i` writes."""
    given, scripts, files = _sed_words(call)
    if given.has("-i", "--in-place"):
        return writing(call, [*files, *_kept(call, files)])
    if given.has("-f", "--file") or _unclear(scripts) or sed_writes(_joined(scripts)):
        return BARRIER
    ranges = _sed_ranges(given, scripts)
    if len(ranges) == 1:
        return limited(call, files, ranges[0]) if len(named(files)) < 2 else _sed_many(call, files)
    effect = reading(call, files, part=True, passes="part")
    if ranges and len(effect.reads) == 1:
        path = effect.reads[0].path
        return replace(effect, reads=tuple(Span(path, one) for one in ranges))
    return effect


def _joined(scripts: Sequence[Word]) -> str:
    return "\n".join(one.text for one in scripts)


def _unclear(scripts: Sequence[Word]) -> bool:
    """Whether nothing at all is known of one of them."""
    return any(not one.certain and not one.text.strip() for one in scripts)


def _kept(call: Call, files: Sequence[Word]) -> list[Word]:
    """The copies that `-i.bak` leaves beside what it changes."""
    found = [match[1] for word in call.args if (match := _SUFFIX.fullmatch(word.text))]
    plain = [word for word in named(files) if word.certain and not word.glob]
    return [Word(f"{word.text}{suffix}") for suffix in found[:1] for word in plain]


def _sed_many(call: Call, files: Sequence[Word]) -> Effect:
    """Lines are counted through all files together, so which lines of which one is not known."""
    return reading(call, files, part=True, passes="part")


def _sed_words(call: Call) -> tuple[Options, list[Word], list[Word]]:
    """The flags, scripts and files; on some systems the word after `-i` is a suffix."""
    args = [
        word for at, word in enumerate(call.args)
        if not (word.text == "" and word.certain and at and call.args[at - 1].text == "-i")
    ]  # fmt: skip
    given = options(args, ("-e", "--expression", "-f", "--file", "-l"))
    scripts, files = list(given.values("-e", "--expression")), list(given.operands)
    if not given.has("-e", "--expression", "-f", "--file") and files:
        scripts.append(files.pop(0))
    return given, scripts, files


def _sed_ranges(given: Options, scripts: Sequence[Word]) -> list[tuple[int, int]]:
    """The lines that are printed, if the scripts say no more than that; else none."""
    pieces = [
        piece.strip()
        for one in scripts
        for piece in re.split(r"[;\n]", one.text[:2_000])
        if piece.strip()
    ]
    if not all(one.certain for one in scripts):
        return []
    if not given.has("-n", "--quiet", "--silent"):
        found = _QUITS.fullmatch(pieces[0]) if len(pieces) == 1 else None
        return [(1, int(found[1][:9]))] if found else []
    quits = _QUITS.fullmatch(pieces[1]) if len(pieces) == 2 else None
    matches = [_PRINTS.fullmatch(piece) for piece in (pieces[:1] if quits else pieces)]
    ranges = [_range(match) for match in matches if match] if all(matches) else []
    return _until(ranges, int(quits[1][:9])) if quits else ranges


def _until(ranges: Sequence[tuple[int, int]], last: int) -> list[tuple[int, int]]:
    """The lines that are printed before `sed` stops."""
    return [(first, min(end, last)) for first, end in ranges if first <= last]


def _range(match: re.Match[str]) -> tuple[int, int]:
    first, last = int(match[1][:9]), match[2]
    if last is None:
        return first, first
    if last == "$":
        return first, TO_THE_END
    return first, first + int(last[1:10]) if last[0] == "+" else max(first, int(last[:9]))


_AWK_LOADS = (
    "-f", "--file", "-i", "--include", "-l", "--load", "-E", "--exec", "-e", "--source",
)  # fmt: skip


def awk(call: Call) -> Effect:
    """`awk` reads, unless its program prints into files or runs something."""
    given = options(call.args, ("-F", "-v", "-f", "--file", "-i"))
    if given.has(*_AWK_LOADS):
        return BARRIER
    if not given.operands:
        return SILENT
    program, files = given.operands[0], given.operands[1:]
    if _unclear([program]) or awk_writes(program.text):
        return BARRIER
    found = _AWK_LINES.fullmatch(program.text[:200]) if program.certain else None
    if found and len(named(files)) < 2:
        return limited(call, files, _awk_range(found))
    return reading(call, files, part=True, passes="part")


def _awk_range(match: re.Match[str]) -> Passing:
    first = int(match[2][:9]) + (match[1] == ">")
    if match[3] is None:
        return (first, first) if match[1] == "==" else (first, TO_THE_END)
    last = int(match[4][:9]) - (match[3] == "<")
    return (first, last) if first <= last else "part"


def perl(call: Call) -> Effect:
    """`perl -pi` changes its files; a one-liner that only prints reads them."""
    given = options(call.args, ("-e", "-E", "-I", "-M"))
    code = " ".join(value.text for value in given.values("-e", "-E"))
    if (
        not code
        or _PERL_MAY_WRITE.search(code)
        or not all(v.certain for v in given.values("-e", "-E"))
    ):
        return IGNORANCE
    if given.has("-i"):
        return writing(call, [*given.operands, *_kept(call, given.operands)])
    return reading(call, given.operands, part=True, passes="part")
