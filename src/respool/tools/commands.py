"""The table of programs: what each one reads, writes, runs or searches, by its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

from msgspec.structs import replace

from .effects import (
    BARRIER,
    IGNORANCE,
    RUN,
    SILENT,
    STREAMS,
    Call,
    Effect,
    both,
    piped,
    ran,
    reading,
    rewrites,
    span,
    unseen,
    writing,
)
from .programs import builds, files, git, shells, streams
from .script import Group, Pipeline, Redirect, Simple, Unreadable, Word
from .shell import parse

Reader = Callable[[Call], Effect]

# Where programs of others lie; what lies in a project's own `bin` is its own, whatever its name.
_INSTALLED = re.compile(
    r"^/(?:usr|opt|bin|sbin|nix|snap)/|^~/|(?:^|/)(?:\.bin|(?:[^/]*env|vendor|go|\.\w+)/bin)/"
    r"|/envs/[^/]+/bin/"
)
_PYTHON = re.compile(r"python3?\.\d{1,2}t?")
_IN_PROJECT = ("./gradlew", "./mvnw")  # a project's own copy of a tool that everybody knows
_DEEPEST = 8  # shells inside shells


def _each(names: str, reader: Reader) -> dict[str, Reader]:
    return dict.fromkeys(names.split(), reader)


def _silent(call: Call) -> Effect:
    return SILENT


def _look(call: Call) -> Effect:
    return ran(call, Effect(kind="read", content="listing"))


_GREP = (
    "-A", "-B", "-C", "-m", "--max-count", "--include", "--exclude", "--exclude-dir", "--context",
    "--after-context", "--before-context", "-d", "-D", "--color", "--label", "--file", "--regexp",
)  # fmt: skip
_RG = (
    *_GREP, "-g", "--glob", "-t", "--type", "-T", "--type-not", "-M", "--max-columns", "-j",
    "--max-depth", "--sort", "--sortr", "-r", "--replace", "-E", "--iglob", "--max-filesize", "-d",
    "--type-add", "--type-clear", "--colors", "--ignore-file", "--pre-glob", "--threads",
    "--engine", "--encoding", "--ignore",
)  # fmt: skip
_LS = ("-I", "--ignore", "--sort", "--time", "--format", "-w")
_TREE = (*_LS, "-L", "--level", "-P", "--ignore-glob")
_DU = ("-d", "--max-depth", "-t", "--threshold", "-I", "--exclude")

PROGRAMS: Final[dict[str, Reader]] = {
    # says, asks or waits; changes no file
    **_each(
        "echo printf true false : test [ pwd date whoami hostname uname id printenv "
        "sleep wait kill "
        "exit return set shopt alias umask ulimit jobs fg bg tput clear seq nproc basename dirname "
        "expr let read shift break continue mktemp cd pushd popd export unset local "
        "declare typeset "
        "readonly hash getconf locale tty stty arch sw_vers yes disown pkill killall mapfile "
        "readarray getopts logger bc say afplay pbcopy",
        _silent,
    ),
    **_each(
        "which type whereis ps pgrep top lsof df free uptime man help info ss netstat ifconfig ip "
        "ping dig nslookup host whois history lscpu lsblk dmesg ffprobe "
        "otool nm ldd objdump readelf size sysctl system_profiler tldr go-licenses pbpaste "
        "realpath readlink cal groups users who w last env-list locate mdfind tasklist",
        _look,
    ),
    # prints files
    **_each("cat tac less more zcat bzcat view", files.whole),
    "nl": partial(files.whole, valued=("-b", "-s", "-w", "-v", "-n", "-i")),
    **_each("bat batcat", files.bat),
    "head": files.head,
    "tail": files.tail,
    "sed": streams.sed,
    "gsed": streams.sed,
    **_each("awk gawk mawk nawk", streams.awk),
    "perl": streams.perl,
    **_each(
        "wc comm paste rev file stat md5sum md5 sha1sum sha256sum cksum cmp delta expand "
        "unexpand tokei cloc sum",
        files.partly,
    ),
    "uniq": partial(files.into_second, valued=("-f", "-s", "-w")),
    "xxd": partial(files.into_second, valued=("-l", "-s", "-c", "-g")),
    "cut": partial(files.partly, valued=("-d", "-f", "-c", "-b")),
    **_each("column fold fmt pr join col", partial(files.partly, valued=("-s", "-t", "-w", "-o"))),
    **_each(
        "od hexdump strings",
        partial(files.partly, valued=("-N", "-j", "-n", "-s", "-l", "-t", "-A")),
    ),
    **_each(
        "diff colordiff",
        lambda call: replace(files.partly(call, valued=("-U", "-I", "-x")), content="diff"),
    ),
    **_each(
        "base64 scc shuf",
        partial(files.partly, valued=("-i", "-n", "-w", "-b", "-f"), output=("-o", "--output")),
    ),
    "shasum": partial(files.partly, valued=("-a",)),
    "iconv": partial(files.partly, valued=("-f", "-t"), output=("-o", "--output")),
    "tr": lambda call: Effect(passed_lines="part") if call.has_input else SILENT,
    "sort": files.sort,
    **_each("jq yq gojq fx", files.query),
    # looks for something
    **_each("grep egrep fgrep zgrep", partial(files.search, valued=_GREP)),
    **_each("rg ag ack ugrep", partial(files.search, valued=_RG)),
    **_each("ast-grep sg semgrep", builds.rewrites_if_told),
    **_each("ls dir", partial(files.listing, valued=_LS)),
    **_each("tree exa eza lsd", partial(files.listing, valued=_TREE)),
    "du": partial(files.listing, valued=_DU),
    **_each("fd fdfind", files.fd),
    **_each("find bfs", files.find),
    # changes files
    "tee": files.tee,
    "sponge": files.soak,
    **_each("cp install ln rsync", files.copy),
    "mv": files.move,
    **_each("rm unlink shred trash", partial(files.change, replaces=True)),
    **_each("mkdir rmdir touch mkfifo", partial(files.change, valued=("-m", "-r", "-d", "-t"))),
    **_each("chmod chown chgrp", partial(files.change, skip=1)),
    "truncate": partial(files.change, valued=("-s", "--size", "-r"), replaces=True),
    "patch": files.patch,
    **_each("apply_patch applypatch", files.apply_patch),
    "dd": files.dd,
    **_each("tar bsdtar", files.archive),
    "unzip": files.unpack,
    **_each("gzip gunzip bzip2 bunzip2 xz unxz zstd", files.squeeze),
    **_each(
        "split csplit zip 7z ed ex dos2unix unix2dos ffmpeg convert magick",
        lambda call: ran(call, BARRIER),
    ),
    # git
    "git": git.git,
    "gh": git.gh,
    # tests, compilers, linters, formatters
    **_each(
        "pytest py.test jest vitest mocha ava tap rspec minitest ctest phpunit bats nose2 "
        "playwright cypress karma unittest gotestsum nextest behave cucumber",
        builds.tests,
    ),
    **_each("tox nox", builds.sessions),
    **_each(
        "tsc tsgo gcc g++ clang clang++ cc rustc javac kotlinc swiftc mypy pyright "
        "basedpyright pylint "
        "flake8 shellcheck hadolint yamllint actionlint vet staticcheck vulture bandit gosec "
        "govulncheck deadcode webpack rollup esbuild vite ponyc py_compile compileall "
        "tsup swc errcheck ineffassign gocyclo vale lychee nilaway "
        "depcheck madge publint attw size-limit",
        builds.builds,
    ),
    **_each(
        "eslint stylelint oxlint standard xo rubocop markdownlint markdownlint-cli2 "
        "tslint swiftlint "
        "golangci-lint ktlint detekt revive sqlfluff knip misspell codespell",
        builds.compiles,
    ),
    **_each(
        "gofmt goimports gofumpt prettier clang-format shfmt yapf autopep8 gci",
        builds.formats_if_told,
    ),
    **_each("biome rome", builds.compiles),
    **_each("black isort rustfmt autoflake pyupgrade docformatter swiftformat", builds.formats),
    "ruff": builds.ruff,
    "buf": partial(
        builds.verbs,
        looks="--version help",
        runs="lint breaking build",
        writes="generate format mod dep",
    ),
    **_each("make gmake ninja rake nx turbo invoke poe", builds.make),
    "cmake": builds.cmake,
    "go": builds.go,
    "cargo": builds.cargo,
    **_each("npm pnpm yarn bun", builds.node_packages),
    **_each("python python3 python2 pypy3", builds.python),
    **_each("node deno tsx ts-node ruby php java", builds.node),
    **_each(
        "mvn mvnw gradle gradlew dotnet sbt mix swift xcodebuild bazel",
        partial(
            builds.goals,
            looks="version help tasks dependencies --version",
            runs="build compile package verify check assemble",
            writes="clean install format new add restore",
            tests_too="test",
        ),
    ),
    **_each("pre-commit protoc dprint taplo lint-staged husky", lambda call: ran(call, BARRIER)),
    # runs something else
    **_each("builtin nohup setsid unbuffer chronic", shells.wrapper),
    **_each("sudo doas", shells.sudo),
    **_each("time gtime", shells.timed),
    **_each("nice ionice", partial(shells.wrapper, valued=("-n", "-c", "--adjustment"))),
    "stdbuf": partial(shells.wrapper, valued=("-i", "-o", "-e")),
    "exec": partial(shells.wrapper, valued=("-a",)),
    "caffeinate": partial(shells.wrapper, valued=("-t", "-w")),
    "env": shells.environment,
    **_each("timeout gtimeout", partial(shells.wrapper, valued=("-s", "-k", "--signal"), skip=1)),
    "command": shells.command,
    "xargs": shells.xargs,
    **_each("bash sh zsh dash ksh fish", shells.shell),
    "eval": shells.evaluate,
    "trap": shells.trap,
    **_each("mise just task asdf", shells.task_runner),
    **_each("npx bunx pnpx", partial(shells.runner, verb="")),
    **_each("uvx pipx", partial(shells.runner, verb="")),
    **_each("uv poetry pdm pipenv hatch rye conda", shells.runner),
    "bundle": partial(shells.runner, verb="exec"),
    **_each(
        "pip pip3 brew apt apt-get yum dnf apk gem composer snap port luarocks", shells.install
    ),
    "rtk": shells.proxied,
    # reaches other places
    "curl": shells.curl,
    "wget": shells.wget,
    **_each("docker podman kubectl docker-compose nerdctl", shells.container),
    "ssh": shells.ssh,
    **_each(
        "systemctl service journalctl launchctl open xdg-open code telnet",
        shells.elsewhere,
    ),
}


@lru_cache(maxsize=4_096)
def effect_of(text: str, cwd: str | None = None, depth: int = 0) -> Effect:
    """What a shell command does; raises Unreadable for what is none."""
    if depth > _DEEPEST:
        raise Unreadable("it runs shells inside shells")
    return _all(parse(text, cwd), depth)


def effect_of_words(words: tuple[str, ...], cwd: str | None = None) -> Effect:
    """What a command does that is given as its words, with no shell between."""
    return _simple(Simple(tuple(Word(word) for word in words), cwd), fed=False, depth=0)


def _all(pipelines: tuple[Pipeline, ...], depth: int, fed: bool = False) -> Effect:
    """What pipelines do, one after another."""
    effect: Effect | None = None
    for one in pipelines:
        found = _pipeline(one, depth, fed)
        effect = found if effect is None else both(effect, found)
    return effect or SILENT


def _pipeline(pipeline: Pipeline, depth: int, fed: bool) -> Effect:
    effect: Effect | None = None
    for stage in pipeline.stages:
        found = _stage(stage, fed or effect is not None, depth)
        effect = found if effect is None else piped(effect, found)
    done = effect or SILENT
    if pipeline.conditional and done.writes:
        done = replace(done, replaces=False)  # what was there may be there still
    return unseen(done) if pipeline.hidden else done


def _stage(stage: Simple | Group, fed: bool, depth: int) -> Effect:
    """One command with its redirections."""
    sources = [one for one in stage.redirects if one.operator == "<"]
    fed = fed or bool(sources) or stage.text is not None
    if isinstance(stage, Group):
        effect = _all(stage.pipelines, depth, fed)
    else:
        effect = _simple(stage, fed, depth)
    cwd = stage.cwd
    for source in sources:
        effect = piped(reading(Call("<", (), cwd), [source.word]), effect)
    for redirect in stage.redirects:
        if redirect.operator != "<":
            effect = _redirected(effect, redirect, cwd)
    return effect


def _redirected(effect: Effect, redirect: Redirect, cwd: str | None) -> Effect:
    """A command whose output goes into a file."""
    shown = redirect.descriptor not in ("", "1") and not redirect.operator.startswith("&")
    if not shown:
        effect = unseen(effect)
    if redirect.word.certain and redirect.word.text in STREAMS:
        return effect
    if span(redirect.word, cwd) is None:
        return both(effect, replace(BARRIER, kind="write", known=False))
    replaces = redirect.operator in (">", ">|", "&>", ">&")
    written = writing(Call(">", (), cwd), [redirect.word], replaces=replaces)
    content = effect.content if shown else "edit"
    return replace(both(effect, written), content=content)


def _simple(simple: Simple, fed: bool, depth: int) -> Effect:
    """One program, by the table."""
    first = simple.words[0]
    name = _program(first.text)
    reader = PROGRAMS.get(name) if first.certain else None
    if reader is None:
        asks = len(simple.words) == 2 and simple.words[1].text in ("--version", "--help")
        return (
            _unknown(simple, name)
            if not asks
            else Effect(kind="read", content="listing", target=name)
        )
    call = Call(
        name,
        simple.words[1:],
        simple.cwd,
        fed,
        simple.text,
        lambda words, cwd: _nested(words, cwd, fed, simple.text, depth),
        lambda text, cwd: _script(text, cwd, depth),
    )
    effect = reader(call)
    if effect.kind == "run" and any(rewrites(name) for name in simple.env):
        return replace(effect, barrier=True)
    return effect


def _program(text: str) -> str:
    """The name that a program goes by in the table."""
    installed = "bin/" in text and _INSTALLED.search(text[:500]) is not None
    name = text.rpartition("/")[2] if installed or text in _IN_PROJECT else text
    return "python" if _PYTHON.fullmatch(name) else name


def _unknown(simple: Simple, name: str) -> Effect:
    return ran(Call(name or "a command", simple.words[1:]), IGNORANCE)


def _nested(
    words: tuple[Word, ...], cwd: str | None, fed: bool, text: str | None, depth: int
) -> Effect:
    """Words that another program runs."""
    if depth > _DEEPEST:
        return IGNORANCE
    return _simple(Simple(words, cwd, (), text), fed, depth + 1)


def _script(text: str, cwd: str | None, depth: int) -> Effect:
    """Shell text that another program runs."""
    try:
        return effect_of(text, cwd, depth + 1)
    except Unreadable:
        return IGNORANCE


__all__ = ["PROGRAMS", "RUN", "Unreadable", "effect_of", "effect_of_words"]
