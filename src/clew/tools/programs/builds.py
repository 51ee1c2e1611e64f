"""Test runners, compilers, linters, formatters and package managers.

The rule for what builds or tests: it does not change the files that an agent reads, unless its
words say so. Formatters, fixers, generators and installers do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    options,
    ran,
    reading,
    unseen,
    words,
    writing,
)
from ..script import Word

_UPDATES = re.compile(
    r"-u|-?-(?:test\.)?update(?:[-=].*)?|--update-?snapshots?|--snapshot-update|--inline-snapshot=.*|--bless|--accept"
)
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
    return ran(call, TEST)


def builds(call: Call) -> Effect:
    """A compiler or linter; an output that it names is written."""
    flags = ("-o", "--output", "--outfile", "--output-file")
    outputs = options(call.args, flags).values(*flags)
    effect = ran(call)
    return both(effect, unseen(writing(call, outputs, replaces=True))) if outputs else effect


def compiles(call: Call) -> Effect:
    """A linter: it prints, unless it is told to fix."""
    if any(word.text.partition("=")[0] in _LINT_FIXES for word in call.args):
        files = options(call.args, ("-c", "--config", "--ext")).operands
        return _formatted(
            call, [w for w in files if w.text not in ("run", "check", "lint", "format")]
        )
    if call.args[:1] and call.args[0].text in ("fmt", "fix", "migrate", "autocorrect"):
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
    """What a formatter changes: its operands, or whatever is here."""
    return writing(call, files) if files else ran(call, BARRIER)


def verbs(call: Call, looks: str, runs: str, writes: str = "", tests_too: str = "") -> Effect:
    """A program whose first word says what it does; what is not listed is not known."""
    verb = next((word.text for word in call.args if not word.text.startswith("-")), "")
    if verb in tests_too.split():
        return tests(call)
    if verb in looks.split() or (not verb and call.args):
        return ran(call, Effect(kind="read", content="listing"))
    if verb in runs.split():
        return ran(call)
    return ran(call, BARRIER if verb in writes.split() else IGNORANCE)


def scripts(call: Call, name: str) -> Effect:
    """A task that a project names: its name says whether it changes files; an odd one may."""
    words = [word for word in re.split(r"[:_\-./\s]+", name.lower()[:100]) if word]
    if any(word in _WRITES_WORDS for word in words):
        return ran(call, BARRIER)
    if any(word in _TEST_WORDS for word in words):
        return tests(call)
    if any(word in _RUN_WORDS for word in words):
        return ran(call)
    return ran(call, IGNORANCE)


def make(call: Call) -> Effect:
    """`make` and its like: every target is a task by its name."""
    given = options(call.args, ("-C", "-f", "-j", "--file", "--directory", "-d"))
    if given.has("-n", "--dry-run", "-p", "--list", "-l", "--version", "--summary"):
        return ran(call, Effect(kind="read", content="listing"))
    targets = [w.text for w in given.operands if "=" not in w.text] or ["build"]
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
        case "build" | "vet" | "install" | "tool" | "clean":
            outputs = given.values("-o")
            effect = ran(call)
            return both(effect, unseen(writing(call, outputs, True))) if outputs else effect
        case "list" | "doc" | "version" | "env" | "help" | "telemetry" | "bug":
            return ran(call, Effect(kind="read", content="listing"))
        case "mod" | "get" | "work":
            return _modules(call, given)
        case "fmt" | "fix" | "generate":
            return ran(call, BARRIER)
        case _:
            return ran(call, IGNORANCE)


def _go_test(call: Call, given: Options) -> Effect:
    """Tests; profiles are files that they name."""
    outputs = given.values("-coverprofile", "-cpuprofile", "-memprofile", "-trace", "-o")
    effect = tests(call)
    return both(effect, unseen(writing(call, outputs, True))) if outputs else effect


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
        return writing(call, [Word("Cargo.toml"), Word("Cargo.lock")])
    return verbs(
        call,
        "tree metadata search version help info pkgid locate-project owner",
        "build b check c doc d clean install uninstall publish package fetch llvm-cov deny audit",
        "new init vendor insta",
    )


def node_packages(call: Call) -> Effect:
    """`npm`, `pnpm`, `yarn`, `bun`: tests and scripts by name, the rest by verb."""
    given = options(
        call.args, ("--prefix", "-C", "--dir", "--cwd", "-w", "--workspace", "--filter", "-F")
    )
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
        return call.again(rest)
    if verb in _NODE_LOOKS or (not verb and call.args):
        return ran(call, Effect(kind="read", content="listing"))
    if verb in _NODE_FILES or not verb:
        return ran(call, BARRIER)
    return scripts(call, verb) if call.name != "npm" else ran(call, IGNORANCE)


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
    first = words[0].text if words else ""
    if first in ("-V", "--version", "-h", "--help"):
        return ran(call, Effect(kind="read", content="listing"))
    if first == "-m" and len(words) > 1:
        module = {"unittest": "pytest", "json.tool": "jq"}.get(words[1].text, words[1].text)
        filter_all = [Word(".")] if words[1].text == "json.tool" else []
        return call.again([Word(module, words[1].sure), *filter_all, *words[2:]])
    return ran(call, IGNORANCE)


def node(call: Call) -> Effect:
    """Node and other interpreters: tests and checks are told by a flag, the rest cannot be read."""
    flags = {word.text for word in call.args}
    if "--test" in flags:
        return tests(call)
    if flags & {"--version", "-v", "-V", "--help", "--check"}:
        return ran(call, Effect(kind="read", content="listing"))
    return ran(call, IGNORANCE)
