"""Effects of test runners, compilers, linters, formatters, package managers.

A build or test run does not change the files that an agent reads, unless its words say so.
Formatters, fixers, generators and installers do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from ...regex import lazy_compile
from .effects import (
    BARRIER_EFFECT,
    RUN_EFFECT,
    TEST_EFFECT,
    UNKNOWN_EFFECT,
    Effect,
    ParsedOptions,
    ProgramCall,
    combine_effects,
    expand_pattern,
    hide_output,
    is_rewrite_variable,
    parse_options,
    read_effect,
    run_effect,
    word_set,
    working_folder,
    write_effect,
)
from .parser import UNKNOWN_FOLDER, ShellWord

_UPDATES = lazy_compile(
    r"-u|-?-(?:test\.)?update(?:[-=].*)?|--update-?[sS]napshots?|--snapshot-update|--bless|--accept"
    r"|--inline-snapshot=.*|--record-mode=.*|--vcr-record=.*|--force-regen|--regen-.*|-fuzz=.*|-fuzz"
)
_MAY_WRITE = lazy_compile(
    r"--(?:write|create|update|init|install|save|generate|fix|apply)(?!.*dry)\S*"
)
_FIX_FLAGS: Final = word_set(
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

_WRITES_WORDS: Final = word_set(
    "fix format fmt write generate gen codegen update migrate install setup release publish deploy "
    "version bump clean prepare seed sync apply autofix prettify tidy vendor upgrade scaffold new"
)
_TEST_WORDS: Final = word_set("test tests spec e2e unit integration jest vitest coverage pytest")
_RUN_WORDS: Final = word_set(
    "check checks lint linter typecheck type types tsc build compile vet ci verify validate bench "
    "benchmark audit knip watch dev start serve preview storybook docs all lints quality "
    "typescript bundle package dist css"
)


def run_tests(call: ProgramCall) -> Effect:
    """Effect of a test runner; updated snapshots may be any file."""
    if any(_UPDATES.fullmatch(word.text) for word in call.args):
        return run_effect(call, Effect(kind="run", barrier=True, content="test"))
    outputs = [*_outputs(call, _TEST_OUTPUTS), *_coverage(call)]
    return _with_outputs(call, run_effect(call, TEST_EFFECT), outputs)


def _outputs(call: ProgramCall, flags: Sequence[str]) -> list[ShellWord]:
    """The files that these flags name: `-o f`, `-of`, `--output=f`."""
    given = parse_options(call.args, flags, long_dash=True)
    joined = [
        ShellWord(word.text[2:], word.certain)
        for word in call.args
        if _joined_value(word.text, flags)
    ]
    return [*given.values(*flags), *joined]


def _joined_value(text: str, flags: Sequence[str]) -> bool:
    return "-o" in flags and text.startswith("-o") and len(text) > 2 and "=" not in text


def _coverage(call: ProgramCall) -> list[ShellWord]:
    """The reports that `--cov-report=xml` and similar flags write."""
    found: list[ShellWord] = []
    for value in parse_options(call.args, ("--cov-report",)).values("--cov-report"):
        kind, _, place = value.text.partition(":")
        name = place or _COVERAGE.get(kind, "")
        found += [ShellWord(name, value.certain)] if name or not value.certain else []
    return found


def _with_outputs(call: ProgramCall, effect: Effect, outputs: Sequence[ShellWord]) -> Effect:
    return (
        combine_effects(effect, hide_output(write_effect(call, outputs, replaces=True)))
        if outputs
        else effect
    )


def run_compiler(call: ProgramCall) -> Effect:
    """Effect of a compiler or linter, which writes the output it names."""
    if any(_MAY_WRITE.fullmatch(word.text) for word in call.args):
        return run_effect(call, BARRIER_EFFECT)
    flags = _OUTPUTS[1:] if call.name == "shellcheck" else _OUTPUTS  # -o enables checks there
    return _with_outputs(call, run_effect(call), _outputs(call, flags))


def run_code_search(call: ProgramCall) -> Effect:
    """Effect of a structural code search, which can also rewrite its matches."""
    flags = {word.text.partition("=")[0] for word in call.args}
    rewrites = flags & {"-U", "--update-all", "-i", "--interactive", "--autofix", "-a"}
    if rewrites or call.args[:1] == (ShellWord("new"),):
        return run_effect(call, BARRIER_EFFECT)
    return run_effect(call, Effect(kind="search", content="hits"))


def run_tox(call: ProgramCall) -> Effect:
    """Effect of `tox` and `nox`: tests, unless an environment's name implies writing."""
    given = parse_options(call.args, ("-e", "-s", "-c", "-k", "-p", "-f", "--session"))
    names = [word.text for word in given.values("-e", "-s", "--session")]
    judged = [run_task(call, name) for name in names if split_name(name) & _WRITES_WORDS]
    return judged[0] if judged else run_tests(call)


def cmake(call: ProgramCall) -> Effect:
    """Effect of `cmake`: configure and build; `--install` and targets by name."""
    given = parse_options(call.args, ("--build", "--target", "-t", "-B", "-S", "-G", "--preset"))
    if given.has("--install"):
        return run_effect(call, BARRIER_EFFECT)
    names = [word.text for word in given.values("--target", "-t")]
    judged = [run_task(call, name) for name in names if split_name(name) & _WRITES_WORDS]
    return judged[0] if judged else run_effect(call)


def run_linter(call: ProgramCall) -> Effect:
    """Effect of a linter: prints, unless a flag makes it fix."""
    if any(word.text.partition("=")[0] in _LINT_FIXES for word in call.args):
        files = parse_options(call.args, ("-c", "--config", "--ext")).operands
        return _format_effect(
            call, [w for w in files if w.text not in ("run", "check", "lint", "format")]
        )
    verb = call.args[0].text if call.args else ""
    if verb in ("fmt", "fix", "migrate", "autocorrect") or (call.name, verb) in _FORMAT_VERBS:
        return run_effect(call, BARRIER_EFFECT)
    return run_compiler(call)


def ruff(call: ProgramCall) -> Effect:
    """Effect of `ruff`: `format` writes unless it checks, `check` writes if it fixes."""
    verb = call.args[0].text if call.args else ""
    inner = replace(call, args=call.args[1:]) if verb in ("format", "check") else call
    return run_formatter(inner) if verb == "format" else run_linter(inner)


def run_formatter(call: ProgramCall) -> Effect:
    """Effect of a formatter that writes unless a flag makes it check."""
    given = parse_options(call.args, ("--config", "-l", "--line-length", "--target-version"))
    if any(word.text in _CHECKS and word.text not in ("-c", "-l", "-d") for word in call.args):
        return run_effect(call)
    return (
        run_effect(call)
        if given.has("--version", "-v", "--help")
        else _format_effect(call, given.operands)
    )


def run_printing_formatter(call: ProgramCall) -> Effect:
    """Effect of a formatter that prints unless a flag makes it write."""
    if call.args[:1] and (call.name, call.args[0].text) in _FORMAT_VERBS:
        return run_effect(call, BARRIER_EFFECT)
    if any(word.text.split("=")[0] in _FIXES for word in call.args):
        return _format_effect(call, parse_options(call.args, ("-r", "-e", "--config")).operands)
    files = parse_options(call.args, ("-r", "--config")).operands
    lists = any(word.text in ("-l", "--check", "--list-different") for word in call.args)
    if lists or not files:
        return run_effect(call)
    return read_effect(
        call, files, content="diff" if "-d" in [w.text for w in call.args] else "code", part=True
    )


def _format_effect(call: ProgramCall, files: Sequence[ShellWord]) -> Effect:
    """Effect of formatting: writes the operands, or any file here if none is certain."""
    values = [word for flag, word in pairwise(call.args) if _can_take_value(flag.text)]
    certain = [word for word in files if not any(word is value for value in values)]
    return (
        write_effect(call, [expand_pattern(word) for word in files])
        if certain
        else run_effect(call, BARRIER_EFFECT)
    )


def _can_take_value(flag: str) -> bool:
    """Check whether the word after a flag may be its value: `--select I`, `--timeout 5m`."""
    return flag[:1] == "-" and "=" not in flag and flag not in _STAND_ALONE


def effect_by_verb(
    call: ProgramCall, *, read_only: str, runs: str, writes: str = "", tests_too: str = ""
) -> Effect:
    """Effect of a program by its first word; unknown if that is not listed."""
    plain = [word for word in call.args if not word.text.startswith("-")]
    verb = plain[0].text if plain else ""
    if verb == "config" and (_is_setting(call, plain[1:]) or len(plain) > 2):
        return run_effect(call, BARRIER_EFFECT)
    if verb in tests_too.split():
        return run_tests(call)
    if verb in read_only.split() or (not verb and call.args):
        return run_effect(call, Effect(kind="read", content="listing"))
    if verb in runs.split():
        return run_effect(call)
    return run_effect(call, BARRIER_EFFECT if verb in writes.split() else UNKNOWN_EFFECT)


_WORD = lazy_compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")


def split_name(name: str) -> set[str]:
    """The words in a name: `spotlessApply`, `lint:fix`, `db-migrate`."""
    return {word.lower() for word in _WORD.findall(name[:100])}


def effect_by_goals(
    call: ProgramCall, *, read_only: str, runs: str, writes: str = "", tests_too: str = ""
) -> Effect:
    """Effect of a program whose operands are all goals, combined."""
    effect = effect_by_verb(
        call, read_only=read_only, runs=runs, writes=writes, tests_too=tests_too
    )
    plain = [word.text for word in call.args if not word.text.startswith("-")]
    tasks = [name for name in plain[1:] if not any(sign in name for sign in "./*")]
    more = any(split_name(name) & _WRITES_WORDS or "fmt" in name for name in tasks)
    more = more or any(_MAY_WRITE.fullmatch(word.text) for word in call.args)
    swift = call.name == "swift" and plain[:1] == ["package"]
    return run_effect(call, BARRIER_EFFECT) if (more and effect.kind == "run") or swift else effect


def run_task(call: ProgramCall, name: str) -> Effect:
    """Effect of a project's task, by the words in its name; an unknown name may write."""
    name_words = split_name(name)
    fixes = any(word.text.partition("=")[0] in _FIX_FLAGS for word in call.args)
    if name_words & _WRITES_WORDS or fixes:
        return run_effect(call, BARRIER_EFFECT)
    if name_words & _TEST_WORDS:
        return run_tests(call)
    return run_effect(call) if name_words & _RUN_WORDS else run_effect(call, UNKNOWN_EFFECT)


def make(call: ProgramCall) -> Effect:
    """Effect of `make` and similar programs: each target is a task."""
    given = parse_options(call.args, ("-C", "-f", "--file", "--directory"))
    asks = given.has("-n", "--dry-run", "-p", "--list", "--version", "--summary")
    if asks or (given.has("-l") and call.name not in ("make", "gmake")):
        return run_effect(call, Effect(kind="read", content="listing"))
    if any(is_rewrite_variable(w.text.partition("=")[0]) for w in given.operands if "=" in w.text):
        return run_effect(call, BARRIER_EFFECT)
    plain = [w.text for w in given.operands if "=" not in w.text]
    targets = [name for name in plain if not name.isdecimal()] or ["build"]  # `-j 8` is no target
    effect = run_task(call, targets[0])
    for target in targets[1:]:
        effect = combine_effects(effect, run_task(call, target))
    return run_effect(call, effect)


_GO_VALUED: Final = (
    "-o", "-C", "-run", "-tags", "-count", "-timeout", "-bench", "-coverprofile", "-cpuprofile",
    "-memprofile", "-trace", "-exec", "-ldflags", "-gcflags", "-p", "-parallel", "-skip", "-mod",
)  # fmt: skip


def go(call: ProgramCall) -> Effect:
    """Effect of the Go tool."""
    verb, rest = (call.args[0].text, call.args[1:]) if call.args else ("help", ())
    given = parse_options(rest, _GO_VALUED, long_dash=True)
    match verb:
        case "test":
            return _go_test(call, given)
        case "tool" if not given.operands or given.operands[0].text not in _GO_TOOLS:
            return run_effect(call, UNKNOWN_EFFECT)
        case "build" | "vet" | "install" | "tool" | "clean":
            return _with_outputs(call, run_effect(call), given.values("-o"))
        case "list" | "doc" | "version" | "env" | "help" | "telemetry" | "bug":
            return run_effect(call, Effect(kind="read", content="listing"))
        case "mod" | "get" | "work":
            return _go_modules(call, given)
        case "fmt" | "fix" | "generate":
            return run_effect(call, BARRIER_EFFECT)
        case _:
            return run_effect(call, UNKNOWN_EFFECT)


_GO_TOOLS: Final = word_set(
    "addr2line asm buildid compile cover doc link nm objdump pprof test2json trace vet dist"
)


def _go_test(call: ProgramCall, given: ParsedOptions) -> Effect:
    """Effect of `go test`, which may write profiles."""
    outputs = given.values("-coverprofile", "-cpuprofile", "-memprofile", "-trace", "-o")
    return _with_outputs(call, run_tests(call), outputs)


def _go_modules(call: ProgramCall, given: ParsedOptions) -> Effect:
    """Effect of `go mod` and similar verbs; vendoring changes more files."""
    verb = given.operands[0].text if given.operands else ""
    if call.args[0].text == "mod" and verb in ("download", "why", "graph", "verify"):
        return run_effect(call, Effect(kind="read", content="listing"))
    if verb in ("vendor", "sync", "use"):
        return run_effect(call, BARRIER_EFFECT)
    return write_effect(call, [ShellWord("go.mod"), ShellWord("go.sum")])


def cargo(call: ProgramCall) -> Effect:
    """Effect of `cargo`."""
    verb = next((w.text for w in call.args if w.text[:1] not in ("-", "+")), "")
    flags = [word.text for word in call.args]
    if verb in ("test", "nextest", "t", "bench"):
        return run_tests(call)
    if verb in ("fmt", "fix", "clippy"):
        writes = verb == "fix" or (verb == "fmt" and "--check" not in flags) or "--fix" in flags
        return run_effect(call, BARRIER_EFFECT if writes else RUN_EFFECT)
    if verb in ("add", "remove", "rm", "update", "generate-lockfile"):
        elsewhere = any(flag.startswith(("-p", "--package", "--manifest-path")) for flag in flags)
        if elsewhere:
            return run_effect(call, BARRIER_EFFECT)
        return write_effect(call, [ShellWord("Cargo.toml"), ShellWord("Cargo.lock")])
    return effect_by_verb(
        call,
        read_only="tree metadata search version help info pkgid locate-project owner",
        runs=(
            "build b check c doc d clean install uninstall publish package fetch llvm-cov deny "
            "audit"
        ),
        writes="new init vendor insta",
    )


def npm(call: ProgramCall) -> Effect:
    """Effect of `npm`, `pnpm`, `yarn` and `bun`: scripts by name, the rest by verb."""
    valued = (*_NODE_VALUED, "-w") if call.name == "npm" else _NODE_VALUED
    given = parse_options(call.args, valued)
    if given.has("-e", "--eval", "-p", "--print") and call.name == "bun":
        return run_effect(call, UNKNOWN_EFFECT)
    words = given.operands
    verb = words[0].text if words else ""
    rest = words[1:]
    if verb in ("run", "run-script", "rum") and rest:
        if "/" in rest[0].text or rest[0].text.endswith((".ts", ".js", ".mjs", ".tsx")):
            return run_effect(call, UNKNOWN_EFFECT)
        written = any(word.text in (*_FIXES, "-u", "--update") for word in call.args[2:])
        return run_effect(call, BARRIER_EFFECT) if written else run_task(call, rest[0].text)
    if verb in ("test", "t", "tst"):
        return run_tests(call)
    if "/" in verb or verb.endswith((".ts", ".js", ".mjs", ".tsx")):
        return run_effect(call, UNKNOWN_EFFECT)
    if verb in ("exec", "x", "dlx") and rest:
        return call.run_words(_words_after(call.args, verb), _package_folder(call, given))
    if verb in ("audit", "config", "pm", "pkg") and _is_setting(call, rest):
        return run_effect(call, BARRIER_EFFECT)
    if verb in _NODE_LOOKS or (not verb and call.args):
        return run_effect(call, Effect(kind="read", content="listing"))
    if verb in _NODE_FILES or not verb:
        return run_effect(call, BARRIER_EFFECT)
    return run_task(call, verb) if call.name != "npm" else run_effect(call, UNKNOWN_EFFECT)


# npm's `-w` takes a name; pnpm's selects the workspace root.
_NODE_VALUED: Final = ("--prefix", "-C", "--dir", "--cwd", "--workspace", "--filter", "-F")


def _package_folder(call: ProgramCall, given: ParsedOptions) -> str | None:
    """The folder a package script runs in: here, the folder a flag names, or unknown."""
    if given.has("--filter", "-F", "-w", "--workspace", "-r", "--recursive", "--workspaces"):
        return UNKNOWN_FOLDER
    return working_folder(call, given.values("--prefix", "-C", "--dir", "--cwd"))


def _words_after(args: Sequence[ShellWord], verb: str) -> tuple[ShellWord, ...]:
    """The words after a verb and its flags."""
    at = next(n for n, word in enumerate(args) if word.text == verb)
    words = list(args[at + 1 :])
    while words and words[0].text.startswith("-"):
        words.pop(0)
    return tuple(word for n, word in enumerate(words) if not (word.text == "--" and n < 2))


def _is_setting(call: ProgramCall, rest: Sequence[ShellWord]) -> bool:
    """Check whether a usually read-only verb is given something to change."""
    first = rest[0].text if rest else ""
    fixes = any(word.text in ("--fix", "--set", "--add", "--unset") for word in call.args)
    return fixes or first in ("fix", "set", "delete", "edit", "fix-only", "trust", "rm", "unset")


_NODE_LOOKS: Final = word_set(
    "ls list view info show outdated audit why explain root prefix bin config help "
    "search pm whoami "
    "licenses fund ping docs repo query --version"
)
_NODE_FILES: Final = word_set(
    "install i ci add remove rm uninstall update upgrade up dedupe link unlink "
    "rebuild version pack "
    "publish init create prune import patch patch-commit build-deps"
)


def python(call: ProgramCall) -> Effect:
    """Effect of Python: unknown, except for modules that are known programs."""
    words = list(call.args)
    while words and words[0].text in ("-u", "-B", "-I", "-s", "-E", "-O"):
        words.pop(0)
    if words and re.fullmatch(r"-m\w[\w.]*", words[0].text):
        words[:1] = [ShellWord("-m"), ShellWord(words[0].text[2:], words[0].certain)]
    first = words[0].text if words else ""
    if first in ("-V", "--version", "-h", "--help"):
        return run_effect(call, Effect(kind="read", content="listing"))
    if first == "-m" and len(words) > 1:
        return _module(call, words[1], words[2:])
    return run_effect(call, UNKNOWN_EFFECT)


def _module(call: ProgramCall, module: ShellWord, args: Sequence[ShellWord]) -> Effect:
    """Effect of a module run as a program."""
    if module.text == "json.tool":
        files = parse_options(args, ("--indent",)).operands
        if len(files) > 1:
            return write_effect(call, files[1:2], replaces=True)
        return call.run_words([ShellWord("jq"), ShellWord("."), *args])
    name = "pytest" if module.text == "unittest" else module.text
    return call.run_words([ShellWord(name, module.certain), *args])


def node(call: ProgramCall) -> Effect:
    """Effect of Node and other interpreters: tests and checks by flag, otherwise unknown."""
    flags = _own_flags(call.args)
    if "--test" in flags:
        return run_tests(call)
    if flags & {"--version", "-v", "-V", "--help", "--check"}:
        return run_effect(call, Effect(kind="read", content="listing"))
    return run_effect(call, UNKNOWN_EFFECT)


_NODE_TAKES: Final = (
    "--import", "-r", "--require", "--loader", "--experimental-loader", "--env-file", "-C",
    "--conditions", "--test-reporter", "--test-name-pattern", "--tsconfig",
)  # fmt: skip


def _own_flags(args: Sequence[ShellWord]) -> set[str]:
    """The interpreter's flags: those before the script."""
    found: set[str] = set()
    words = iter(args)
    for word in words:
        if not word.text.startswith("-"):
            break
        found.add(word.text)
        if word.text in _NODE_TAKES:
            next(words, None)
    return found
