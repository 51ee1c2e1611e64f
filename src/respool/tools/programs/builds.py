"""Test runners, compilers, linters, formatters and package managers.

The rule for what builds or tests: it does not change the files that an agent reads, unless its
words say so. Formatters, fixers, generators and installers do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from ..effects import (
    BARRIER,
    IGNORANCE,
    RUN,
    TEST,
    Call,
    Effect,
    Options,
    both,
    expanded,
    folder_told,
    options,
    ran,
    reading,
    rewrites,
    unseen,
    words,
    writing,
)
from ..script import UNKNOWN, Word

_UPDATES = re.compile(
    r"-u|-?-(?:test\.)?update(?:[-=].*)?|--update-?[sS]napshots?|--snapshot-update|--bless|--accept"
    r"|--inline-snapshot=.*|--record-mode=.*|--vcr-record=.*|--force-regen|--regen-.*|-fuzz=.*|-fuzz"
)
_MAY_WRITE = re.compile(
    r"--(?:write|create|update|init|install|save|generate|fix|apply)(?!.*dry)\S*"
)
_TOLD_TO_FIX: Final = words(
    "--fix --write --apply --autocorrect --autocorrect-all --in-place --unsafe-fixes --fix-type"
)
_OUTPUTS: Final = (
    "-o", "--output", "--outfile", "--output-file", "--outDir", "--outdir", "--out-dir",
    "--html-report", "--txt-report", "--junit-xml", "--xml-report", "--cobertura-xml-report",
)  # fmt: skip
_TEST_OUTPUTS: Final = (
    "--junitxml", "--junit-xml", "--html", "--outputFile", "--output-file", "--report-file",
    "--json-report-file", "--resultlog", "--log-file",
)  # fmt: skip
_COVERAGE: Final = {
    "xml": "coverage.xml", "json": "coverage.json", "lcov": "coverage.lcov", "html": "htmlcov",
    "annotate": ".",
}  # fmt: skip
_FIXES: Final = (
    "--fix", "--write", "-w", "--apply", "--apply-unsafe", "--autocorrect", "-a", "-A", "-i",
    "--in-place", "--unsafe-fixes", "--fix-dry-run", "--inplace", "--autocorrect-all", "--fix-type",
    "--unsafe",
)  # fmt: skip
_LINT_FIXES: Final = (
    "--fix", "--write", "-w", "--apply", "--apply-unsafe", "-a", "-A", "--autocorrect",
    "--fix-type", "--autocorrect-all", "--unsafe-fixes", "--fix-only", "--add-noqa",
    "--write-changes", "-F", "--auto-correct",
)  # fmt: skip
_STAND_ALONE: Final = frozenset(
    (*_FIXES, *_LINT_FIXES, "--", "-q", "--quiet", "--cache", "-s", "-l", "-d", "--preview", "-v")
)
_CHECKS: Final = (
    "--check",
    "--diff",
    "-d",
    "-l",
    "--list-different",
    "-c",
    "--verify",
    "--dry-run",
)

_FORMAT_VERBS: Final = (("gci", "write"), ("sqlfluff", "format"))

_WRITES_WORDS: Final = words(
    "fix format fmt write generate gen codegen update migrate install setup release publish deploy "
    "version bump clean prepare seed sync apply autofix prettify tidy vendor upgrade scaffold new"
)
_TEST_WORDS: Final = words("test tests spec e2e unit integration jest vitest coverage pytest")
_RUN_WORDS: Final = words(
    "check checks lint linter typecheck type types tsc build compile vet ci verify validate bench "
    "benchmark audit knip watch dev start serve preview storybook docs all lints quality "
    "typescript bundle package dist css"
)


def tests(call: Call) -> Effect:
    """A test runner; snapshots that are written anew may be any file."""
    if any(_UPDATES.fullmatch(word.text) for word in call.args):
        return ran(call, Effect(kind="run", barrier=True, content="test"))
    outputs = [*_outputs(call, _TEST_OUTPUTS), *_coverage(call)]
    return _with_outputs(call, ran(call, TEST), outputs)


def _outputs(call: Call, flags: Sequence[str]) -> list[Word]:
    """The files that these flags name: `-o f`, `-of`, `--output=f`."""
    given = options(call.args, flags, long_dash=True)
    joined = [Word(word.text[2:], word.certain) for word in call.args if _joined(word.text, flags)]
    return [*given.values(*flags), *joined]


def _joined(text: str, flags: Sequence[str]) -> bool:
    return "-o" in flags and text.startswith("-o") and len(text) > 2 and "=" not in text


def _coverage(call: Call) -> list[Word]:
    """What `--cov-report=xml` and its like write, under their own names if no other is given."""
    found: list[Word] = []
    for value in options(call.args, ("--cov-report",)).values("--cov-report"):
        kind, _, place = value.text.partition(":")
        name = place or _COVERAGE.get(kind, "")
        found += [Word(name, value.certain)] if name or not value.certain else []
    return found


def _with_outputs(call: Call, effect: Effect, outputs: Sequence[Word]) -> Effect:
    return both(effect, unseen(writing(call, outputs, replaces=True))) if outputs else effect


def builds(call: Call) -> Effect:
    """A compiler or linter; an output that it names is written."""
    if any(_MAY_WRITE.fullmatch(word.text) for word in call.args):
        return ran(call, BARRIER)
    flags = _OUTPUTS[1:] if call.name == "shellcheck" else _OUTPUTS  # there, -o asks for checks
    return _with_outputs(call, ran(call), _outputs(call, flags))


def rewrites_if_told(call: Call) -> Effect:
    """A search by the shape of code; told to, it changes what it finds."""
    flags = {word.text.partition("=")[0] for word in call.args}
    told = flags & {"-U", "--update-all", "-i", "--interactive", "--autofix", "-a"}
    if told or call.args[:1] == (Word("new"),):
        return ran(call, BARRIER)
    return ran(call, Effect(kind="search", content="hits"))


def sessions(call: Call) -> Effect:
    """`tox` and `nox`: tests, unless the names of what is run say that it writes."""
    given = options(call.args, ("-e", "-s", "-c", "-k", "-p", "-f", "--session"))
    names = [word.text for word in given.values("-e", "-s", "--session")]
    judged = [scripts(call, name) for name in names if words_of(name) & _WRITES_WORDS]
    return judged[0] if judged else tests(call)


def cmake(call: Call) -> Effect:
    """`cmake`: configures and builds; `--install` and targets go by their names."""
    given = options(call.args, ("--build", "--target", "-t", "-B", "-S", "-G", "--preset"))
    if given.has("--install"):
        return ran(call, BARRIER)
    names = [word.text for word in given.values("--target", "-t")]
    judged = [scripts(call, name) for name in names if words_of(name) & _WRITES_WORDS]
    return judged[0] if judged else ran(call)


def compiles(call: Call) -> Effect:
    """A linter: it prints, unless it is told to fix."""
    if any(word.text.partition("=")[0] in _LINT_FIXES for word in call.args):
        files = options(call.args, ("-c", "--config", "--ext")).operands
        return _formatted(
            call, [w for w in files if w.text not in ("run", "check", "lint", "format")]
        )
    verb = call.args[0].text if call.args else ""
    if verb in ("fmt", "fix", "migrate", "autocorrect") or (call.name, verb) in _FORMAT_VERBS:
        return ran(call, BARRIER)
    return builds(call)


def ruff(call: Call) -> Effect:
    """`ruff format` writes unless it checks, `ruff check` if it fixes."""
    verb = call.args[0].text if call.args else ""
    inner = replace(call, args=call.args[1:]) if verb in ("format", "check") else call
    return formats(inner) if verb == "format" else compiles(inner)


def formats(call: Call) -> Effect:
    """A formatter that writes unless it is told to check."""
    given = options(call.args, ("--config", "-l", "--line-length", "--target-version"))
    if any(word.text in _CHECKS and word.text not in ("-c", "-l", "-d") for word in call.args):
        return ran(call)
    return ran(call) if given.has("--version", "-v", "--help") else _formatted(call, given.operands)


def formats_if_told(call: Call) -> Effect:
    """A formatter that prints unless it is told to write."""
    if call.args[:1] and (call.name, call.args[0].text) in _FORMAT_VERBS:
        return ran(call, BARRIER)
    if any(word.text.split("=")[0] in _FIXES for word in call.args):
        return _formatted(call, options(call.args, ("-r", "-e", "--config")).operands)
    files = options(call.args, ("-r", "--config")).operands
    lists = any(word.text in ("-l", "--check", "--list-different") for word in call.args)
    if lists or not files:
        return ran(call)
    return reading(
        call, files, "diff" if "-d" in [w.text for w in call.args] else "code", part=True
    )


def _formatted(call: Call, files: Sequence[Word]) -> Effect:
    """What a formatter changes: its operands; whatever is here, if none is surely one."""
    values = [word for flag, word in pairwise(call.args) if _may_take(flag.text)]
    sure = [word for word in files if not any(word is value for value in values)]
    return writing(call, [expanded(word) for word in files]) if sure else ran(call, BARRIER)


def _may_take(flag: str) -> bool:
    """Whether the word behind a flag may be its value: `--select I`, `--timeout 5m`."""
    return flag[:1] == "-" and "=" not in flag and flag not in _STAND_ALONE


def verbs(call: Call, looks: str, runs: str, writes: str = "", tests_too: str = "") -> Effect:
    """A program whose first word says what it does; what is not listed is not known."""
    plain = [word for word in call.args if not word.text.startswith("-")]
    verb = plain[0].text if plain else ""
    if verb == "config" and (_sets(call, plain[1:]) or len(plain) > 2):
        return ran(call, BARRIER)
    if verb in tests_too.split():
        return tests(call)
    if verb in looks.split() or (not verb and call.args):
        return ran(call, Effect(kind="read", content="listing"))
    if verb in runs.split():
        return ran(call)
    return ran(call, BARRIER if verb in writes.split() else IGNORANCE)


_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")


def words_of(name: str) -> set[str]:
    """The words of a name: `spotlessApply`, `lint:fix`, `db-migrate`."""
    return {word.lower() for word in _WORD.findall(name[:100])}


def goals(call: Call, looks: str, runs: str, writes: str = "", tests_too: str = "") -> Effect:
    """A program whose first word says what it does, and each further one what it does as well."""
    effect = verbs(call, looks, runs, writes, tests_too)
    plain = [word.text for word in call.args if not word.text.startswith("-")]
    tasks = [name for name in plain[1:] if not any(sign in name for sign in "./*")]
    more = any(words_of(name) & _WRITES_WORDS or "fmt" in name for name in tasks)
    more = more or any(_MAY_WRITE.fullmatch(word.text) for word in call.args)
    swift = call.name == "swift" and plain[:1] == ["package"]
    return ran(call, BARRIER) if (more and effect.kind == "run") or swift else effect


def scripts(call: Call, name: str) -> Effect:
    """A task that a project names: its name says whether it changes files; an odd one may."""
    said = words_of(name)
    fixes = any(word.text.partition("=")[0] in _TOLD_TO_FIX for word in call.args)
    if said & _WRITES_WORDS or fixes:
        return ran(call, BARRIER)
    if said & _TEST_WORDS:
        return tests(call)
    return ran(call) if said & _RUN_WORDS else ran(call, IGNORANCE)


def make(call: Call) -> Effect:
    """`make` and its like: every target is a task by its name."""
    given = options(call.args, ("-C", "-f", "--file", "--directory"))
    asks = given.has("-n", "--dry-run", "-p", "--list", "--version", "--summary")
    if asks or (given.has("-l") and call.name not in ("make", "gmake")):
        return ran(call, Effect(kind="read", content="listing"))
    if any(rewrites(w.text.partition("=")[0]) for w in given.operands if "=" in w.text):
        return ran(call, BARRIER)
    plain = [w.text for w in given.operands if "=" not in w.text]
    targets = [name for name in plain if not name.isdecimal()] or ["build"]  # `-j 8` is no target
    effect = scripts(call, targets[0])
    for target in targets[1:]:
        effect = both(effect, scripts(call, target))
    return ran(call, effect)


_GO_VALUED: Final = (
    "-o", "-C", "-run", "-tags", "-count", "-timeout", "-bench", "-coverprofile", "-cpuprofile",
    "-memprofile", "-trace", "-exec", "-ldflags", "-gcflags", "-p", "-parallel", "-skip", "-mod",
)  # fmt: skip


def go(call: Call) -> Effect:
    """The Go tool."""
    verb, rest = (call.args[0].text, call.args[1:]) if call.args else ("help", ())
    given = options(rest, _GO_VALUED, long_dash=True)
    match verb:
        case "test":
            return _go_test(call, given)
        case "tool" if not given.operands or given.operands[0].text not in _GO_TOOLS:
            return ran(call, IGNORANCE)
        case "build" | "vet" | "install" | "tool" | "clean":
            return _with_outputs(call, ran(call), given.values("-o"))
        case "list" | "doc" | "version" | "env" | "help" | "telemetry" | "bug":
            return ran(call, Effect(kind="read", content="listing"))
        case "mod" | "get" | "work":
            return _modules(call, given)
        case "fmt" | "fix" | "generate":
            return ran(call, BARRIER)
        case _:
            return ran(call, IGNORANCE)


_GO_TOOLS: Final = words(
    "addr2line asm buildid compile cover doc link nm objdump pprof test2json trace vet dist"
)


def _go_test(call: Call, given: Options) -> Effect:
    """Tests; profiles are files that they name."""
    outputs = given.values("-coverprofile", "-cpuprofile", "-memprofile", "-trace", "-o")
    return _with_outputs(call, tests(call), outputs)


def _modules(call: Call, given: Options) -> Effect:
    """What changes `go.mod`; vendoring changes more."""
    verb = given.operands[0].text if given.operands else ""
    if call.args[0].text == "mod" and verb in ("download", "why", "graph", "verify"):
        return ran(call, Effect(kind="read", content="listing"))
    if verb in ("vendor", "sync", "use"):
        return ran(call, BARRIER)
    return writing(call, [Word("go.mod"), Word("go.sum")])


def cargo(call: Call) -> Effect:
    """Rust's tool."""
    verb = next((w.text for w in call.args if w.text[:1] not in ("-", "+")), "")
    flags = [word.text for word in call.args]
    if verb in ("test", "nextest", "t", "bench"):
        return tests(call)
    if verb in ("fmt", "fix", "clippy"):
        writes = verb == "fix" or (verb == "fmt" and "--check" not in flags) or "--fix" in flags
        return ran(call, BARRIER if writes else RUN)
    if verb in ("add", "remove", "rm", "update", "generate-lockfile"):
        elsewhere = any(flag.startswith(("-p", "--package", "--manifest-path")) for flag in flags)
        if elsewhere:
            return ran(call, BARRIER)
        return writing(call, [Word("Cargo.toml"), Word("Cargo.lock")])
    return verbs(
        call,
        "tree metadata search version help info pkgid locate-project owner",
        "build b check c doc d clean install uninstall publish package fetch llvm-cov deny audit",
        "new init vendor insta",
    )


def node_packages(call: Call) -> Effect:
    """`npm`, `pnpm`, `yarn`, `bun`: tests and scripts by name, the rest by verb."""
    valued = (*_NODE_VALUED, "-w") if call.name == "npm" else _NODE_VALUED
    given = options(call.args, valued)
    if given.has("-e", "--eval", "-p", "--print") and call.name == "bun":
        return ran(call, IGNORANCE)
    words = given.operands
    verb = words[0].text if words else ""
    rest = words[1:]
    if verb in ("run", "run-script", "rum") and rest:
        if "/" in rest[0].text or rest[0].text.endswith((".ts", ".js", ".mjs", ".tsx")):
            return ran(call, IGNORANCE)
        written = any(word.text in (*_FIXES, "-u", "--update") for word in call.args[2:])
        return ran(call, BARRIER) if written else scripts(call, rest[0].text)
    if verb in ("test", "t", "tst"):
        return tests(call)
    if "/" in verb or verb.endswith((".ts", ".js", ".mjs", ".tsx")):
        return ran(call, IGNORANCE)
    if verb in ("exec", "x", "dlx") and rest:
        return call.run_words(_from(call.args, verb), _package_folder(call, given))
    if verb in ("audit", "config", "pm", "pkg") and _sets(call, rest):
        return ran(call, BARRIER)
    if verb in _NODE_LOOKS or (not verb and call.args):
        return ran(call, Effect(kind="read", content="listing"))
    if verb in _NODE_FILES or not verb:
        return ran(call, BARRIER)
    return scripts(call, verb) if call.name != "npm" else ran(call, IGNORANCE)


# npm's `-w` takes a name; pnpm's is the root of all packages.
_NODE_VALUED: Final = ("--prefix", "-C", "--dir", "--cwd", "--workspace", "--filter", "-F")


def _package_folder(call: Call, given: Options) -> str | None:
    """Where a package's program runs: here, in the folder that is told, or in some package."""
    if given.has("--filter", "-F", "-w", "--workspace", "-r", "--recursive", "--workspaces"):
        return UNKNOWN
    return folder_told(call, given.values("--prefix", "-C", "--dir", "--cwd"))


def _from(args: Sequence[Word], verb: str) -> tuple[Word, ...]:
    """The words after a verb and its flags, with the flags of what is run."""
    at = next(n for n, word in enumerate(args) if word.text == verb)
    words = list(args[at + 1 :])
    while words and words[0].text.startswith("-"):
        words.pop(0)
    return tuple(word for n, word in enumerate(words) if not (word.text == "--" and n < 2))


def _sets(call: Call, rest: Sequence[Word]) -> bool:
    """Whether what usually looks is told to change something."""
    first = rest[0].text if rest else ""
    fixes = any(word.text in ("--fix", "--set", "--add", "--unset") for word in call.args)
    return fixes or first in ("fix", "set", "delete", "edit", "fix-only", "trust", "rm", "unset")


_NODE_LOOKS: Final = words(
    "ls list view info show outdated audit why explain root prefix bin config help "
    "search pm whoami "
    "licenses fund ping docs repo query --version"
)
_NODE_FILES: Final = words(
    "install i ci add remove rm uninstall update upgrade up dedupe link unlink "
    "rebuild version pack "
    "publish init create prune import patch patch-commit build-deps"
)


def python(call: Call) -> Effect:
    """Python runs what cannot be read, but for the modules that are known programs."""
    words = list(call.args)
    while words and words[0].text in ("-u", "-B", "-I", "-s", "-E", "-O"):
        words.pop(0)
    if words and re.fullmatch(r"-m\w[\w.]*", words[0].text):
        words[:1] = [Word("-m"), Word(words[0].text[2:], words[0].certain)]
    first = words[0].text if words else ""
    if first in ("-V", "--version", "-h", "--help"):
        return ran(call, Effect(kind="read", content="listing"))
    if first == "-m" and len(words) > 1:
        return _module(call, words[1], words[2:])
    return ran(call, IGNORANCE)


def _module(call: Call, module: Word, args: Sequence[Word]) -> Effect:
    """A module that is run as a program."""
    if module.text == "json.tool":
        files = options(args, ("--indent",)).operands
        if len(files) > 1:
            return writing(call, files[1:2], replaces=True)
        return call.run_words([Word("jq"), Word("."), *args])
    name = "pytest" if module.text == "unittest" else module.text
    return call.run_words([Word(name, module.certain), *args])


def node(call: Call) -> Effect:
    """Node and other interpreters: tests and checks are told by a flag, the rest cannot be read."""
    flags = _own_flags(call.args)
    if "--test" in flags:
        return tests(call)
    if flags & {"--version", "-v", "-V", "--help", "--check"}:
        return ran(call, Effect(kind="read", content="listing"))
    return ran(call, IGNORANCE)


_NODE_TAKES: Final = (
    "--import", "-r", "--require", "--loader", "--experimental-loader", "--env-file", "-C",
    "--conditions", "--test-reporter", "--test-name-pattern", "--tsconfig",
)  # fmt: skip


def _own_flags(args: Sequence[Word]) -> set[str]:
    """The flags before the script that is run: those behind it are the script's."""
    found: set[str] = set()
    words = iter(args)
    for word in words:
        if not word.text.startswith("-"):
            break
        found.add(word.text)
        if word.text in _NODE_TAKES:
            next(words, None)
    return found
