"""Effects of programs that print, search, filter or change files.

sed scripts and awk programs are parsed by their own grammar, so a separator inside a pattern or a
string ends nothing. A script that cannot be parsed to its end counts as writing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from ...regex import lazy_compile
from ..paths import patched_files
from ..use import END_OF_FILE, Content, Span
from .effects import (
    BARRIER_EFFECT,
    NO_EFFECT,
    STREAMS,
    UNKNOWN_EFFECT,
    Effect,
    ParsedOptions,
    PassedLines,
    ProgramCall,
    combine_effects,
    file_operands,
    hide_output,
    parse_options,
    read_effect,
    slice_lines,
    span_of,
    working_folder,
    write_effect,
)
from .parser import ShellWord

CURRENT_FOLDER = ShellWord(".")


def print_files(
    call: ProgramCall, valued: Sequence[str] = (), content: Content | None = "code"
) -> Effect:
    """Effect of `cat` and similar programs: all of each file."""
    return read_effect(
        call, parse_options(call.args, valued).operands, content=content, passes="all"
    )


def print_parts(
    call: ProgramCall, valued: Sequence[str] = (), output: Sequence[str] = ()
) -> Effect:
    """Effect of `wc`, `cut`, `column`: a part of each file; some have an output flag."""
    given = parse_options(call.args, (*valued, *output))
    effect = read_effect(call, given.operands, part=True, passes="part")
    outputs = given.values(*output)
    return (
        combine_effects(hide_output(effect), write_effect(call, outputs, replaces=True))
        if outputs
        else effect
    )


def write_second_operand(call: ProgramCall, valued: Sequence[str] = ()) -> Effect:
    """Effect of `uniq` and `xxd`, which write their second operand."""
    words = parse_options(call.args, valued).operands
    return (
        write_effect(call, words[1:2], replaces=True)
        if len(words) > 1
        else print_parts(call, valued)
    )


def head(call: ProgramCall) -> Effect:
    """Effect of `head`: the first lines of each file."""
    files, number = _line_count_option(call)
    return print_lines(call, files, (1, number) if number else "part")


def tail(call: ProgramCall) -> Effect:
    """Effect of `tail`: the last lines of each file, or those from a line on."""
    files, _ = _line_count_option(call)
    given = parse_options(call.args, ("-n", "--lines", "-c", "--bytes"))
    counts = [value.text for value in given.values("-n", "--lines")]
    starts = [text[1:] for text in counts if text.startswith("+")] if counts else []
    if starts and starts[-1].isdecimal():
        return print_lines(call, files, (max(1, int(starts[-1][:9])), END_OF_FILE))
    return print_lines(call, files, "part")


def _line_count_option(call: ProgramCall) -> tuple[tuple[ShellWord, ...], int | None]:
    """The files, and the requested number of lines (None: not counted in lines)."""
    given = parse_options(call.args, ("-n", "--lines", "-c", "--bytes"))
    if given.has("-c", "--bytes"):
        return given.operands, None
    counts = given.values("-n", "--lines")
    short = [word.text[1:] for word in call.args if re.fullmatch(r"-\d{1,9}", word.text)]
    text = counts[-1].text if counts else short[-1] if short else "10"
    certain = not counts or counts[-1].certain
    return given.operands, int(text) if certain and re.fullmatch(r"\d{1,9}", text) else None


def print_lines(call: ProgramCall, files: Sequence[ShellWord], passing: PassedLines) -> Effect:
    """Effect of printing some lines of each file, or of the input."""
    effect = read_effect(call, files, passes=passing)
    return replace(effect, reads=tuple(_limit_span(one, passing) for one in effect.reads))


def _limit_span(read: Span, passing: PassedLines) -> Span:
    if isinstance(passing, tuple):
        return slice_lines(read, *passing)
    return Span(read.path, read.lines, part=True)


def bat(call: ProgramCall) -> Effect:
    """Effect of `bat`, with its own syntax for line ranges."""
    given = parse_options(
        call.args, ("-r", "--line-range", "-l", "--language", "--style", "--theme", "--color")
    )
    ranges = [value.text for value in given.values("-r", "--line-range")]
    found = re.fullmatch(r"(\d{1,9})?:(\d{1,9})?", ranges[-1]) if ranges else None
    if found:
        return print_lines(call, given.operands, (int(found[1] or 1), int(found[2] or END_OF_FILE)))
    return (
        print_lines(call, given.operands, "part") if ranges else read_effect(call, given.operands)
    )


def search_files(
    call: ProgramCall, valued: Sequence[str], patterns: Sequence[str] = ("-e", "-f")
) -> Effect:
    """Effect of `grep` and similar programs: hits in files, or a filter."""
    given = parse_options(call.args, (*valued, *patterns))
    if given.has("--pre", "--pager"):
        return UNKNOWN_EFFECT
    skip = 0 if given.has(*patterns, "--files", "--regexp", "--type-list") else 1
    files = given.operands[skip:]
    listing = given.has("-l", "-L", "--files-with-matches", "--files", "--count", "-c")
    recursive = given.has("-r", "-R", "--recursive") or call.name not in ("grep", "egrep", "fgrep")
    if not files and not (call.has_input and not given.has("-r", "-R")) and recursive:
        files = (CURRENT_FOLDER,)
    effect = read_effect(
        call,
        files,
        content="listing" if listing else "hits",
        kind="search",
        part=True,
        passes="part",
    )
    return effect if effect.passed_lines else replace(effect, passed_lines=None)


def list_files(call: ProgramCall, valued: Sequence[str] = (), skip: int = 0) -> Effect:
    """Effect of `ls` and similar programs: a listing."""
    given = parse_options(call.args, valued)
    if given.has("--output", "-o") and call.name == "tree":
        return write_effect(call, given.operands, replaces=True)
    files = given.operands[skip:]
    return replace(
        read_effect(
            _without_input(call), files or (CURRENT_FOLDER,), content="listing", kind="search"
        ),
        passed_lines=None,
    )


def _without_input(call: ProgramCall) -> ProgramCall:
    return replace(call, has_input=False)


def fd(call: ProgramCall) -> Effect:
    """Effect of `fd`: a listing, or a program run on each match."""
    flags = ("-x", "-X", "--exec", "--exec-batch")
    at = next((n for n, word in enumerate(call.args) if word.text in flags), None)
    valued = ("-e", "--extension", "-t", "--type", "-d", "--max-depth", "-E", "--exclude", "-g")
    if at is None:
        return list_files(call, valued, skip=1)
    inner = [
        ShellWord("", certain=False) if "{" in word.text else word for word in call.args[at + 1 :]
    ]
    return replace(call, has_input=False).run_words([*inner, ShellWord("", certain=False)])


def find(call: ProgramCall) -> Effect:
    """Effect of `find`: a listing, plus what its actions run or delete."""
    args = call.args
    words = next((n for n, w in enumerate(args) if w.text[:1] in ("-", "(", "!")), len(args))
    places = args[:words] or (CURRENT_FOLDER,)
    effect = replace(
        read_effect(_without_input(call), places, content="listing", kind="search"),
        passed_lines=None,
    )
    texts = [word.text for word in args]
    if "-delete" in texts:
        effect = combine_effects(effect, _reads_below(write_effect(call, places)))
    for flag in ("-fprint", "-fls", "-fprintf", "-fprint0"):
        if flag in texts[:-1]:
            effect = combine_effects(
                effect, write_effect(call, [args[texts.index(flag) + 1]], replaces=True)
            )
    for at, text in enumerate(texts):
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            effect = _exec_effect(call, effect, args[at + 1 :])
    return effect


def _exec_effect(call: ProgramCall, effect: Effect, words: Sequence[ShellWord]) -> Effect:
    """Effect of `-exec` on unknown files."""
    end = next((n for n, word in enumerate(words) if word.text in (";", "+")), len(words))
    inner = call.run_words(
        ShellWord("", certain=False) if "{}" in w.text else w for w in words[:end]
    )
    return replace(
        combine_effects(hide_output(effect), inner), content=inner.content or effect.content
    )


def _reads_below(effect: Effect) -> Effect:
    return replace(
        effect, writes=tuple(Span(w.path, part=True) for w in effect.writes), replaces=False
    )


def tee(call: ProgramCall) -> Effect:
    """Effect of `tee`: writes its input and passes it on."""
    given = parse_options(call.args)
    effect = write_effect(call, given.operands, replaces=not given.has("-a", "--append"))
    written = effect.writes or (effect.barrier and file_operands(given.operands))
    return (
        replace(effect, passed_lines="all", content=None) if written else Effect(passed_lines="all")
    )


def sponge(call: ProgramCall) -> Effect:
    """Effect of `sponge`: writes its input when that has ended."""
    given = parse_options(call.args)
    effect = write_effect(call, given.operands, replaces=not given.has("-a"))
    return effect if given.operands else Effect(passed_lines="all")


def copy_files(call: ProgramCall) -> Effect:
    """Effect of `cp`, `install`, `ln`, `rsync`: the last operand is written."""
    given = parse_options(
        call.args,
        ("-t", "--target-directory", "-m", "-o", "-g", "-S", "--suffix", "-e", "--exclude"),
    )
    if call.name == "install" and given.has("-d", "--directory"):
        return write_effect(call, given.operands)
    places = given.values("-t", "--target-directory") or given.operands[-1:]
    if call.name == "ln" and len(given.operands) == 1:
        places = (ShellWord(posixpath.basename(places[-1].text), places[-1].certain),)
    sources = given.operands if given.has("-t", "--target-directory") else given.operands[:-1]
    folder = given.has("-t", "--target-directory")
    targets = _copy_targets(sources, places[-1], folder) if places else ()
    effect = write_effect(call, targets, replaces=call.name in ("cp", "install"))
    return (
        _reads_below(effect) if given.has("-r", "-R", "-a", "--recursive", "--archive") else effect
    )


def _copy_targets(sources: Sequence[ShellWord], place: ShellWord, folder: bool) -> list[ShellWord]:
    """The paths a copy writes: the destination, or the new names inside it."""
    folder = folder or place.text.endswith("/") or place.text in (".", "..")
    if not (folder or len(sources) > 1):
        return [place]
    if any(one.glob or not one.certain or one.text.endswith("/") for one in sources):
        return [place]  # some programs copy only the contents of a folder that ends in a slash
    names = [posixpath.basename(one.text.rstrip("/")) for one in sources]
    return [
        ShellWord(f"{place.text.rstrip('/')}/{name}", place.certain) for name in names if name
    ] or [place]


def move_files(call: ProgramCall) -> Effect:
    """Effect of `mv`: writes both the old and the new paths."""
    given = parse_options(call.args, ("-t", "--target-directory", "-S", "--suffix"))
    return write_effect(call, (*given.operands, *given.values("-t", "--target-directory")))


def change_files(
    call: ProgramCall, valued: Sequence[str] = (), skip: int = 0, replaces: bool = False
) -> Effect:
    """Effect of programs that change each operand."""
    return write_effect(call, parse_options(call.args, valued).operands[skip:], replaces)


def patch(call: ProgramCall) -> Effect:
    """Effect of `patch`: writes the files the patch names, if it is readable."""
    given = parse_options(call.args, ("-i", "--input", "-p", "-d", "--directory", "-o", "-r"))
    if given.has("--dry-run"):
        return Effect(kind="run", content="log")
    if given.has("-o", "-r"):
        return BARRIER_EFFECT
    call = replace(call, cwd=working_folder(call, given.values("-d", "--directory")))
    return write_effect(call, given.operands[:1]) if given.operands else _patch_effect(call)


def apply_patch(call: ProgramCall) -> Effect:
    """Effect of `apply_patch`, fed by a here-document or an argument."""
    if call.args and call.args[0].certain:
        call = replace(call, text=call.args[0].text)
    return _patch_effect(call)


def _patch_effect(call: ProgramCall) -> Effect:
    found = patched_files(call.text or "", call.cwd)
    if found is None or any(span_of(ShellWord(one.path), call.cwd) is None for one in found[0]):
        return Effect(kind="write", barrier=True, content="edit", target=call.name)
    spans, replaces = found
    return Effect("write", (), spans, replaces, content="edit", target=spans[0].path)


def dd(call: ProgramCall) -> Effect:
    """Effect of `dd of=…`."""
    outputs = [ShellWord(w.text[3:], w.certain) for w in call.args if w.text.startswith("of=")]
    return write_effect(call, outputs, replaces=True) if outputs else NO_EFFECT


def sort(call: ProgramCall) -> Effect:
    """Effect of `sort`, which writes with `-o`."""
    given = parse_options(call.args, ("-k", "-t", "-o", "--output", "-S", "-T", "--key"))
    outputs = given.values("-o", "--output")
    effect = read_effect(call, given.operands, part=True, passes="part")
    return (
        combine_effects(hide_output(effect), write_effect(call, outputs, replaces=True))
        if outputs
        else effect
    )


_YQ_VERBS = ("eval", "e", "eval-all", "ea")


def jq(call: ProgramCall) -> Effect:
    """Effect of `jq` and `yq`: values from files; `yq -i` writes."""
    words: list[ShellWord] = []
    given_words = iter(call.args)
    for word in given_words:
        if word.text in ("--arg", "--argjson", "--slurpfile", "--rawfile"):
            next(given_words, None)
            next(given_words, None)
        else:
            words.append(word)
    given = parse_options(words, ("--indent", "-f", "--from-file", "-o", "-p"))
    operands = given.operands
    if call.name == "yq" and operands and operands[0].text in _YQ_VERBS:
        operands = operands[1:]
    if given.has("-i", "--inplace", "--in-place") and call.name != "jq":
        return write_effect(call, operands[1:])
    if given.has("--split-exp"):
        return BARRIER_EFFECT
    files = operands if given.has("-f", "--from-file") else operands[1:]
    return replace(
        read_effect(call, files, content="json", part=True, passes="part"), content="json"
    )


def tar(call: ProgramCall) -> Effect:
    """Effect of `tar`: lists, writes an archive, or extracts one."""
    args = call.args
    if args and not args[0].text.startswith("-"):
        args = (ShellWord(f"-{args[0].text}", args[0].certain), *args[1:])
    given = parse_options(args, ("-f", "--file", "-C", "--directory"))
    if given.has("-t", "--list"):
        return Effect(kind="search", content="listing", target=call.name)
    if given.has("-c", "--create"):
        return write_effect(call, given.values("-f", "--file") or [ShellWord("-")], replaces=True)
    places = given.values("-C", "--directory")
    extracts = given.has("-x", "--extract", "--get")
    return _reads_below(write_effect(call, places)) if places and extracts else BARRIER_EFFECT


def unzip(call: ProgramCall) -> Effect:
    """Effect of `unzip`: lists, prints or extracts an archive."""
    given = parse_options(call.args, ("-d", "-x"))
    if given.has("-l", "-v", "-p", "-t", "-Z"):
        return Effect(kind="search", content="listing", target=call.name)
    return (
        _reads_below(write_effect(call, given.values("-d"))) if given.has("-d") else BARRIER_EFFECT
    )


def compress(call: ProgramCall) -> Effect:
    """Effect of `gzip` and similar programs: replaces a file, unless it prints."""
    given = parse_options(call.args, ("-S",))
    if given.has("-c", "--stdout", "-l", "-t", "--list", "--test") or not given.operands:
        return read_effect(call, given.operands, part=True, passes="part")
    return write_effect(
        call, [name for word in given.operands for name in _compressed_names(call, word)]
    )


_ENDINGS = {"gzip": ".gz", "gunzip": ".gz", "bzip2": ".bz2", "bunzip2": ".bz2", "zstd": ".zst"}


def _compressed_names(call: ProgramCall, word: ShellWord) -> list[ShellWord]:
    """A file and its name after compression or decompression."""
    if word.glob or not word.certain:
        return [word]
    suffix = _ENDINGS.get(call.name, ".xz")
    other = word.text.removesuffix(suffix)
    return [word, ShellWord(other if other != word.text else word.text + suffix)]


_BETWEEN: Final = lazy_compile(r"[\s;{}]*")
_SED_POSITION: Final = lazy_compile(r"[\d,$~+!\s]*")
_AFTER_PATTERN: Final = lazy_compile(r"[IM]*")
_IN_BRACKETS = r"\[\^?\]?(?:\[[:.=][^\]\n]{0,30}\]|[^\]\n]){0,200}\]"
_BRACKET: Final = lazy_compile(_IN_BRACKETS)
_SED_FLAGS: Final = lazy_compile(r"[gpiImM\d]*(?=[\s;}#]|$)")
_SED_TEXT: Final = lazy_compile(r"(?:[^\\\n]|\\.|\\\n)*", re.DOTALL)
_SED_LINE: Final = lazy_compile(r"[^\n]*")  # no continuation lines in comments and file names
_SED_LABEL: Final = lazy_compile(r"[^\n;}]*")
_SED_COUNT: Final = lazy_compile(r"\s*\d*")

_AWK_TEXT: Final = lazy_compile(r'"(?:[^"\\]|\\.)*"|#[^\n]*', re.DOTALL)
_AWK_PATTERN: Final = lazy_compile(rf"/(?:[^/\\\n\[]|\\.|{_IN_BRACKETS})*/")
_AWK_RUNS: Final = lazy_compile(r"\bsystem\s*\(|(?<!\|)\|(?!\|)|@")
_AWK_WORDS: Final = lazy_compile(r"\bprintf?\b|[()\[\];}>]")
_TO_STREAM: Final = lazy_compile(r'>>?\s*"-"')


def has_sed_write(script: str) -> bool:
    """Check whether a sed script may write: `w`, `W`, `e`, or `s` with one of these flags."""
    at = _match_end(_BETWEEN, script, 0)
    while at < len(script):
        found = _sed_command_end(script, at)
        if found is None:
            return True
        at = _match_end(_BETWEEN, script, found)
    return False


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The end of a match at this position; the position itself if there is none."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _sed_command_end(script: str, at: int) -> int | None:
    """The end of one command; None if it writes or is unknown."""
    start = _address_end(script, at)
    if start is None or start >= len(script):
        return start
    ends = _SED_COMMANDS.get(script[start])
    return ends(script, start + 1) if ends else None


def _address_end(script: str, at: int) -> int | None:
    """The end of a command's line addresses."""
    at = _match_end(_SED_POSITION, script, at)
    while script[at : at + 1] in ("/", "\\"):
        opens = at + (script[at] == "\\")
        ends = _delimited_end(script, opens + 1, script[opens : opens + 1])
        if ends is None:
            return None
        at = _match_end(_SED_POSITION, script, _match_end(_AFTER_PATTERN, script, ends))
    return at


def _delimited_end(script: str, at: int, delimiter: str, brackets: bool = True) -> int | None:
    """The position after the closing delimiter; inside brackets a delimiter closes nothing."""
    while delimiter and at < len(script):
        if script[at] == delimiter:
            return at + 1
        if brackets and script[at] == "[":
            bracket = _BRACKET.match(script, at)
            if bracket is None:
                return None
            at = bracket.end()
        else:
            at += 2 if script[at] == "\\" else 1
    return None


def _substitution_end(script: str, at: int) -> int | None:
    delimiter = script[at : at + 1]
    middle = _delimited_end(script, at + 1, delimiter)
    ends = None if middle is None else _delimited_end(script, middle, delimiter, brackets=False)
    flags = None if ends is None else _SED_FLAGS.match(script, ends)
    return flags.end() if flags else None


def _transliteration_end(script: str, at: int) -> int | None:
    delimiter = script[at : at + 1]
    middle = _delimited_end(script, at + 1, delimiter, brackets=False)
    return None if middle is None else _delimited_end(script, middle, delimiter, brackets=False)


_SED_COMMANDS: Final[dict[str, Callable[[str, int], int | None]]] = {
    **dict.fromkeys("dDgGhHnNpPxzF={}", lambda script, at: at),
    **dict.fromkeys("lLqQ", lambda script, at: _match_end(_SED_COUNT, script, at)),
    **dict.fromkeys("aic", lambda script, at: _match_end(_SED_TEXT, script, at)),
    **dict.fromkeys("rR#", lambda script, at: _match_end(_SED_LINE, script, at)),
    **dict.fromkeys(":btTv", lambda script, at: _match_end(_SED_LABEL, script, at)),
    "s": _substitution_end,
    "y": _transliteration_end,
}


def has_awk_write(program: str) -> bool:
    """Check whether an awk program may write: `print` to a file or pipe, `system`, includes."""
    code = _awk_code(program)
    return code is None or _AWK_RUNS.search(code) is not None or _has_redirect(code)


def _awk_code(program: str) -> str | None:
    """A program without its strings, patterns and comments; None if one is unterminated."""
    code: list[str] = []
    at, last = 0, ""
    while at < len(program):
        letter = program[at]
        if letter not in '"#/' or (letter == "/" and _is_division(last)):
            code.append(letter)
            last = letter if letter.strip() else last
            at += 1
            continue
        found = (_AWK_PATTERN if letter == "/" else _AWK_TEXT).match(program, at)
        if found is None:
            return None
        code.append('"-"' if found[0][1:-1] in STREAMS else "" if letter == "#" else " 0 ")
        last, at = ("" if letter == "#" else "0"), found.end()
    return _TO_STREAM.sub(" ", "".join(code))


def _is_division(last: str) -> bool:
    """Check whether a slash after this letter divides; otherwise it opens a pattern."""
    return last.isalnum() or last in ("_", ")", "]", "$")


def _has_redirect(code: str) -> bool:
    """Check whether a `print` statement redirects to a file: a `>` outside parentheses."""
    prints, depth = False, 0
    for word in _AWK_WORDS.findall(code):
        if word[0] == "p":
            prints, depth = True, 0
        elif word in "([":
            depth += 1
        elif word in ")]":
            depth -= 1
        elif depth <= 0 and prints:
            if word == ">":
                return True
            prints = False
    return False


_PRINTS = lazy_compile(r"(\d+)(?:,(\+?\d+|\$))?p")
_QUITS = lazy_compile(r"(\d+)q")
_AWK_LINES = lazy_compile(
    r"\s*NR\s*(==|>=|>)\s*(\d+)(?:\s*(?:&&|,)\s*NR\s*(==|<=|<)\s*(\d+))?\s*(?:\{\s*print\s*;?\s*\})?\s*"
)
_SUFFIX = lazy_compile(r"(?:-[nErsuzplaw0]*i|--in-place=|--inplace=)([^*/]+)")
_PERL_MAY_WRITE = lazy_compile(
    r"system|exec|open|link|rename|mkdir|rmdir|write|truncate|chmod|chown|utime|dbm|eval|fork|kill"
    r"|sys|qx|`|>|\^I|do |require|use "
)


def sed(call: ProgramCall) -> Effect:
    """Effect of `sed`: line ranges if it only prints those; `-i` writes."""
    given, scripts, files = _sed_words(call)
    if given.has("-i", "--in-place"):
        return write_effect(call, [*files, *_backup_files(call, files)])
    if (
        given.has("-f", "--file")
        or _is_unknown_script(scripts)
        or has_sed_write(_join_scripts(scripts))
    ):
        return BARRIER_EFFECT
    ranges = _sed_ranges(given, scripts)
    if len(ranges) == 1:
        return (
            print_lines(call, files, ranges[0])
            if len(file_operands(files)) < 2
            else _sed_many_files(call, files)
        )
    effect = read_effect(call, files, part=True, passes="part")
    if ranges and len(effect.reads) == 1:
        path = effect.reads[0].path
        return replace(effect, reads=tuple(Span(path, one) for one in ranges))
    return effect


def _join_scripts(scripts: Sequence[ShellWord]) -> str:
    return "\n".join(one.text for one in scripts)


def _is_unknown_script(scripts: Sequence[ShellWord]) -> bool:
    """Check whether one of these scripts is entirely unknown."""
    return any(not one.certain and not one.text.strip() for one in scripts)


def _backup_files(call: ProgramCall, files: Sequence[ShellWord]) -> list[ShellWord]:
    """The backup copies that `-i.bak` leaves."""
    found = [match[1] for word in call.args if (match := _SUFFIX.fullmatch(word.text))]
    plain = [word for word in file_operands(files) if word.certain and not word.glob]
    return [ShellWord(f"{word.text}{suffix}") for suffix in found[:1] for word in plain]


def _sed_many_files(call: ProgramCall, files: Sequence[ShellWord]) -> Effect:
    """Effect of sed on several files: it counts lines through all of them together."""
    return read_effect(call, files, part=True, passes="part")


def _sed_words(call: ProgramCall) -> tuple[ParsedOptions, list[ShellWord], list[ShellWord]]:
    """The flags, scripts and files; on some systems the word after `-i` is a suffix."""
    args = [
        word
        for at, word in enumerate(call.args)
        if not (word.text == "" and word.certain and at and call.args[at - 1].text == "-i")
    ]
    given = parse_options(args, ("-e", "--expression", "-f", "--file", "-l"))
    scripts, files = list(given.values("-e", "--expression")), list(given.operands)
    if not given.has("-e", "--expression", "-f", "--file") and files:
        scripts.append(files.pop(0))
    return given, scripts, files


def _sed_ranges(given: ParsedOptions, scripts: Sequence[ShellWord]) -> list[tuple[int, int]]:
    """The printed line ranges, if the scripts do nothing else; otherwise none."""
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
    ranges = [_sed_range(match) for match in matches if match] if all(matches) else []
    return _clip_ranges(ranges, int(quits[1][:9])) if quits else ranges


def _clip_ranges(ranges: Sequence[tuple[int, int]], last: int) -> list[tuple[int, int]]:
    """The line ranges printed before `sed` quits."""
    return [(first, min(end, last)) for first, end in ranges if first <= last]


def _sed_range(match: re.Match[str]) -> tuple[int, int]:
    first, last = int(match[1][:9]), match[2]
    if last is None:
        return first, first
    if last == "$":
        return first, END_OF_FILE
    return first, first + int(last[1:10]) if last[0] == "+" else max(first, int(last[:9]))


_AWK_LOADS = (
    "-f", "--file", "-i", "--include", "-l", "--load", "-E", "--exec", "-e", "--source",
)  # fmt: skip


def awk(call: ProgramCall) -> Effect:
    """Effect of `awk`: reads, unless its program writes files or runs commands."""
    given = parse_options(call.args, ("-F", "-v", "-f", "--file", "-i"))
    if given.has(*_AWK_LOADS):
        return BARRIER_EFFECT
    if not given.operands:
        return NO_EFFECT
    program, files = given.operands[0], given.operands[1:]
    if _is_unknown_script([program]) or has_awk_write(program.text):
        return BARRIER_EFFECT
    found = _AWK_LINES.fullmatch(program.text[:200]) if program.certain else None
    if found and len(file_operands(files)) < 2:
        return print_lines(call, files, _awk_range(found))
    return read_effect(call, files, part=True, passes="part")


def _awk_range(match: re.Match[str]) -> PassedLines:
    first = int(match[2][:9]) + (match[1] == ">")
    if match[3] is None:
        return (first, first) if match[1] == "==" else (first, END_OF_FILE)
    last = int(match[4][:9]) - (match[3] == "<")
    return (first, last) if first <= last else "part"


def perl(call: ProgramCall) -> Effect:
    """Effect of `perl`: `-pi` changes its files; a one-liner that only prints reads them."""
    given = parse_options(call.args, ("-e", "-E", "-I", "-M"))
    code = " ".join(value.text for value in given.values("-e", "-E"))
    if (
        not code
        or _PERL_MAY_WRITE.search(code)
        or not all(v.certain for v in given.values("-e", "-E"))
    ):
        return UNKNOWN_EFFECT
    if given.has("-i"):
        return write_effect(call, [*given.operands, *_backup_files(call, given.operands)])
    return read_effect(call, given.operands, part=True, passes="part")
