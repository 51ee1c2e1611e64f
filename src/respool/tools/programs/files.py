"""Programs that print files, look for them, or change them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..effects import (
    BARRIER,
    IGNORANCE,
    SILENT,
    Call,
    Effect,
    Passing,
    both,
    folder_told,
    lines_of,
    named,
    options,
    reading,
    span,
    unseen,
    writing,
)
from ..patches import patched
from ..script import Word
from ..use import TO_THE_END, Content, Span

HERE = Word(".")


def whole(call: Call, valued: Sequence[str] = (), content: Content | None = "code") -> Effect:
    """`cat` and its like: all of each file."""
    return reading(call, options(call.args, valued).operands, content, passes="all")


def partly(call: Call, valued: Sequence[str] = (), output: Sequence[str] = ()) -> Effect:
    """`wc`, `cut`, `column`: something of each file; some have a flag for where it is written."""
    given = options(call.args, (*valued, *output))
    effect = reading(call, given.operands, part=True, passes="part")
    outputs = given.values(*output)
    return both(unseen(effect), writing(call, outputs, replaces=True)) if outputs else effect


def into_second(call: Call, valued: Sequence[str] = ()) -> Effect:
    """`uniq` and `xxd`: a second operand is written."""
    words = options(call.args, valued).operands
    return writing(call, words[1:2], replaces=True) if len(words) > 1 else partly(call, valued)


def head(call: Call) -> Effect:
    """The first lines of each file."""
    files, number = _counted(call)
    return limited(call, files, (1, number) if number else "part")


def tail(call: Call) -> Effect:
    """The last lines of each file, or those from a line on."""
    files, _ = _counted(call)
    given = options(call.args, ("-n", "--lines", "-c", "--bytes"))
    counts = [value.text for value in given.values("-n", "--lines")]
    starts = [text[1:] for text in counts if text.startswith("+")] if counts else []
    if starts and starts[-1].isdecimal():
        return limited(call, files, (max(1, int(starts[-1][:9])), TO_THE_END))
    return limited(call, files, "part")


def _counted(call: Call) -> tuple[tuple[Word, ...], int | None]:
    """The files, and the number of lines that is asked for (None: not in lines)."""
    given = options(call.args, ("-n", "--lines", "-c", "--bytes"))
    if given.has("-c", "--bytes"):
        return given.operands, None
    counts = given.values("-n", "--lines")
    short = [word.text[1:] for word in call.args if re.fullmatch(r"-\d{1,9}", word.text)]
    text = counts[-1].text if counts else short[-1] if short else "10"
    sure = not counts or counts[-1].certain
    return given.operands, int(text) if sure and re.fullmatch(r"\d{1,9}", text) else None


def limited(call: Call, files: Sequence[Word], passing: Passing) -> Effect:
    """Some lines of each file, or of the input."""
    effect = reading(call, files, passes=passing)
    return replace(effect, reads=tuple(_only(one, passing) for one in effect.reads))


def _only(read: Span, passing: Passing) -> Span:
    if isinstance(passing, tuple):
        return lines_of(read, *passing)
    return Span(read.path, read.lines, part=True)


def bat(call: Call) -> Effect:
    """`bat`, with its own way of naming lines."""
    given = options(
        call.args, ("-r", "--line-range", "-l", "--language", "--style", "--theme", "--color")
    )
    ranges = [value.text for value in given.values("-r", "--line-range")]
    found = re.fullmatch(r"(\d{1,9})?:(\d{1,9})?", ranges[-1]) if ranges else None
    if found:
        return limited(call, given.operands, (int(found[1] or 1), int(found[2] or TO_THE_END)))
    return limited(call, given.operands, "part") if ranges else reading(call, given.operands)


def search(call: Call, valued: Sequence[str], patterns: Sequence[str] = ("-e", "-f")) -> Effect:
    """`grep` and its like: hits in files, or a filter."""
    given = options(call.args, (*valued, *patterns))
    if given.has("--pre", "--pager"):
        return IGNORANCE
    skip = 0 if given.has(*patterns, "--files", "--regexp", "--type-list") else 1
    files = given.operands[skip:]
    listing = given.has("-l", "-L", "--files-with-matches", "--files", "--count", "-c")
    recursive = given.has("-r", "-R", "--recursive") or call.name not in ("grep", "egrep", "fgrep")
    if not files and not (call.has_input and not given.has("-r", "-R")) and recursive:
        files = (HERE,)
    effect = reading(
        call, files, "listing" if listing else "hits", "search", part=True, passes="part"
    )
    return effect if effect.passed_lines else replace(effect, passed_lines=None)


def listing(call: Call, valued: Sequence[str] = (), skip: int = 0) -> Effect:
    """`ls` and its like: what is there."""
    given = options(call.args, valued)
    if given.has("--output", "-o") and call.name == "tree":
        return writing(call, given.operands, replaces=True)
    files = given.operands[skip:]
    return replace(reading(_unfed(call), files or (HERE,), "listing", "search"), passed_lines=None)


def _unfed(call: Call) -> Call:
    return replace(call, has_input=False)


def fd(call: Call) -> Effect:
    """`fd`: a listing, or a program that is run on each thing found."""
    flags = ("-x", "-X", "--exec", "--exec-batch")
    at = next((n for n, word in enumerate(call.args) if word.text in flags), None)
    valued = ("-e", "--extension", "-t", "--type", "-d", "--max-depth", "-E", "--exclude", "-g")
    if at is None:
        return listing(call, valued, skip=1)
    inner = [Word("", certain=False) if "{" in word.text else word for word in call.args[at + 1 :]]
    return replace(call, has_input=False).run_words([*inner, Word("", certain=False)])


def find(call: Call) -> Effect:
    """`find`: a listing; what it runs or deletes is told from its words."""
    args = call.args
    words = next((n for n, w in enumerate(args) if w.text[:1] in ("-", "(", "!")), len(args))
    places = args[:words] or (HERE,)
    effect = replace(reading(_unfed(call), places, "listing", "search"), passed_lines=None)
    texts = [word.text for word in args]
    if "-delete" in texts:
        effect = both(effect, _below(writing(call, places)))
    for flag in ("-fprint", "-fls", "-fprintf", "-fprint0"):
        if flag in texts[:-1]:
            effect = both(effect, writing(call, [args[texts.index(flag) + 1]], replaces=True))
    for at, text in enumerate(texts):
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            effect = _executed(call, effect, args[at + 1 :])
    return effect


def _executed(call: Call, effect: Effect, words: Sequence[Word]) -> Effect:
    """What `-exec` runs, on files that are not known."""
    end = next((n for n, word in enumerate(words) if word.text in (";", "+")), len(words))
    inner = call.run_words(Word("", certain=False) if "{}" in w.text else w for w in words[:end])
    return replace(both(unseen(effect), inner), content=inner.content or effect.content)


def _below(effect: Effect) -> Effect:
    return replace(
        effect, writes=tuple(Span(w.path, part=True) for w in effect.writes), replaces=False
    )


def tee(call: Call) -> Effect:
    """Writes its input, and passes it on."""
    given = options(call.args)
    effect = writing(call, given.operands, replaces=not given.has("-a", "--append"))
    written = effect.writes or (effect.barrier and named(given.operands))
    return replace(effect, passed_lines="all", content=None) if written else Effect(passed_lines="all")


def soak(call: Call) -> Effect:
    """`sponge`: writes its input once all of it is there."""
    given = options(call.args)
    effect = writing(call, given.operands, replaces=not given.has("-a"))
    return effect if given.operands else Effect(passed_lines="all")


def copy(call: Call) -> Effect:
    """`cp`, `install`, `ln`, `rsync`: the last operand is written."""
    given = options(
        call.args,
        ("-t", "--target-directory", "-m", "-o", "-g", "-S", "--suffix", "-e", "--exclude"),
    )
    if call.name == "install" and given.has("-d", "--directory"):
        return writing(call, given.operands)
    places = given.values("-t", "--target-directory") or given.operands[-1:]
    if call.name == "ln" and len(given.operands) == 1:
        places = (Word(posixpath.basename(places[-1].text), places[-1].certain),)
    sources = given.operands if given.has("-t", "--target-directory") else given.operands[:-1]
    folder = given.has("-t", "--target-directory")
    targets = _into(sources, places[-1], folder) if places else ()
    effect = writing(call, targets, replaces=call.name in ("cp", "install"))
    return _below(effect) if given.has("-r", "-R", "-a", "--recursive", "--archive") else effect


def _into(sources: Sequence[Word], place: Word, folder: bool) -> list[Word]:
    """What a copy writes: the place itself, or what it will be called in there."""
    folder = folder or place.text.endswith("/") or place.text in (".", "..")
    if not (folder or len(sources) > 1):
        return [place]
    if any(one.glob or not one.certain or one.text.endswith("/") for one in sources):
        return [place]  # of a folder that ends in a slash, some copy what is in it
    names = [posixpath.basename(one.text.rstrip("/")) for one in sources]
    return [Word(f"{place.text.rstrip('/')}/{name}", place.certain) for name in names if name] or [
        place
    ]


def move(call: Call) -> Effect:
    """`mv`: what was there is gone, what is there now was elsewhere."""
    given = options(call.args, ("-t", "--target-directory", "-S", "--suffix"))
    return writing(call, (*given.operands, *given.values("-t", "--target-directory")))


def change(call: Call, valued: Sequence[str] = (), skip: int = 0, replaces: bool = False) -> Effect:
    """Programs that change each of their operands."""
    return writing(call, options(call.args, valued).operands[skip:], replaces)


def patch(call: Call) -> Effect:
    """`patch`: what the patch names, if it can be read."""
    given = options(call.args, ("-i", "--input", "-p", "-d", "--directory", "-o", "-r"))
    if given.has("--dry-run"):
        return Effect(kind="run", content="log")
    if given.has("-o", "-r"):
        return BARRIER
    call = replace(call, cwd=folder_told(call, given.values("-d", "--directory")))
    return writing(call, given.operands[:1]) if given.operands else _patched(call)


def apply_patch(call: Call) -> Effect:
    """`apply_patch`, fed by a here-document or an argument."""
    if call.args and call.args[0].certain:
        call = replace(call, text=call.args[0].text)
    return _patched(call)


def _patched(call: Call) -> Effect:
    found = patched(call.text or "", call.cwd)
    if found is None or any(span(Word(one.path), call.cwd) is None for one in found[0]):
        return Effect(kind="write", barrier=True, content="edit", target=call.name)
    spans, replaces = found
    return Effect("write", (), spans, replaces, content="edit", target=spans[0].path)


def dd(call: Call) -> Effect:
    """`dd of=…`."""
    outputs = [Word(w.text[3:], w.certain) for w in call.args if w.text.startswith("of=")]
    return writing(call, outputs, replaces=True) if outputs else SILENT


def sort(call: Call) -> Effect:
    """`sort -o` writes."""
    given = options(call.args, ("-k", "-t", "-o", "--output", "-S", "-T", "--key"))
    outputs = given.values("-o", "--output")
    effect = reading(call, given.operands, part=True, passes="part")
    return both(unseen(effect), writing(call, outputs, replaces=True)) if outputs else effect


_YQ_VERBS = ("eval", "e", "eval-all", "ea")


def query(call: Call) -> Effect:
    """`jq` and `yq`: values out of files; `yq -i` writes."""
    words: list[Word] = []
    given_words = iter(call.args)
    for word in given_words:
        if word.text in ("--arg", "--argjson", "--slurpfile", "--rawfile"):
            next(given_words, None)
            next(given_words, None)
        else:
            words.append(word)
    given = options(words, ("--indent", "-f", "--from-file", "-o", "-p"))
    operands = given.operands
    if call.name == "yq" and operands and operands[0].text in _YQ_VERBS:
        operands = operands[1:]
    if given.has("-i", "--inplace", "--in-place") and call.name != "jq":
        return writing(call, operands[1:])
    if given.has("--split-exp"):
        return BARRIER
    files = operands if given.has("-f", "--from-file") else operands[1:]
    return replace(reading(call, files, "json", part=True, passes="part"), content="json")


def archive(call: Call) -> Effect:
    """`tar`: lists, or writes an archive, or writes what was in one."""
    args = call.args
    if args and not args[0].text.startswith("-"):
        args = (Word(f"-{args[0].text}", args[0].certain), *args[1:])
    given = options(args, ("-f", "--file", "-C", "--directory"))
    if given.has("-t", "--list"):
        return Effect(kind="search", content="listing", target=call.name)
    if given.has("-c", "--create"):
        return writing(call, given.values("-f", "--file") or [Word("-")], replaces=True)
    places = given.values("-C", "--directory")
    extracts = given.has("-x", "--extract", "--get")
    return _below(writing(call, places)) if places and extracts else BARRIER


def unpack(call: Call) -> Effect:
    """`unzip`: lists, prints, or writes what is in an archive."""
    given = options(call.args, ("-d", "-x"))
    if given.has("-l", "-v", "-p", "-t", "-Z"):
        return Effect(kind="search", content="listing", target=call.name)
    return _below(writing(call, given.values("-d"))) if given.has("-d") else BARRIER


def squeeze(call: Call) -> Effect:
    """`gzip` and its like: a file becomes another, unless it is printed."""
    given = options(call.args, ("-S",))
    if given.has("-c", "--stdout", "-l", "-t", "--list", "--test") or not given.operands:
        return reading(call, given.operands, part=True, passes="part")
    return writing(call, [name for word in given.operands for name in _squeezed(call, word)])


_ENDINGS = {"gzip": ".gz", "gunzip": ".gz", "bzip2": ".bz2", "bunzip2": ".bz2", "zstd": ".zst"}


def _squeezed(call: Call, word: Word) -> list[Word]:
    """A file, and what it becomes: with an ending, or without the one it has."""
    if word.glob or not word.certain:
        return [word]
    ending = _ENDINGS.get(call.name, ".xz")
    other = word.text.removesuffix(ending)
    return [word, Word(other if other != word.text else word.text + ending)]
