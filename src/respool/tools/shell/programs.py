"""Table of known programs, and the effect of a whole command."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from ...cache_scope import scoped_cache
from ...regex import lazy_compile
from . import build_programs, file_programs, git_programs, powershell_programs, wrapper_programs
from .effects import (
    BARRIER_EFFECT,
    NO_EFFECT,
    STREAMS,
    UNKNOWN_EFFECT,
    Effect,
    ProgramCall,
    combine_effects,
    hide_output,
    is_rewrite_variable,
    pipe_effects,
    read_effect,
    run_effect,
    span_of,
    write_effect,
)
from .parser import (
    MAX_COMMAND_BYTES,
    CommandGroup,
    Pipeline,
    Redirect,
    ShellWord,
    SimpleCommand,
    UnreadableCommand,
    parse_command,
)
from .powershell import is_powershell, parse_powershell

EffectReader = Callable[[ProgramCall], Effect]

# Folders of installed programs; programs in a project's own `bin` are unknown.
_INSTALLED = lazy_compile(
    r"^/(?:usr|opt|bin|sbin|nix|snap)/|^~/|(?:^|/)(?:\.bin|(?:[^/]*env|vendor|go|\.\w+)/bin)/"
    r"|/envs/[^/]+/bin/"
)
_PYTHON = lazy_compile(r"python3?\.\d{1,2}t?")
_POWERSHELLS = ("powershell.exe", "pwsh.exe", "powershell", "pwsh")
_IN_PROJECT = ("./gradlew", "./mvnw")  # wrappers with known behaviour
_MAX_SHELL_DEPTH = 8  # nested shells


def _same_reader(names: str, reader: EffectReader) -> dict[str, EffectReader]:
    return dict.fromkeys(names.split(), reader)


def _silent_effect(call: ProgramCall) -> Effect:
    return NO_EFFECT


def _listing_effect(call: ProgramCall) -> Effect:
    return run_effect(call, Effect(kind="read", content="listing"))


_GREP_VALUED = (
    "-A", "-B", "-C", "-m", "--max-count", "--include", "--exclude", "--exclude-dir", "--context",
    "--after-context", "--before-context", "-d", "-D", "--color", "--label", "--file", "--regexp",
)  # fmt: skip
_RG_VALUED = (
    *_GREP_VALUED, "-g", "--glob", "-t", "--type", "-T", "--type-not", "-M", "--max-columns", "-j",
    "--max-depth", "--sort", "--sortr", "-r", "--replace", "-E", "--iglob", "--max-filesize", "-d",
    "--type-add", "--type-clear", "--colors", "--ignore-file", "--pre-glob", "--threads",
    "--engine", "--encoding", "--ignore",
)  # fmt: skip
_LS_VALUED = ("-I", "--ignore", "--sort", "--time", "--format", "-w")
_TREE_VALUED = (*_LS_VALUED, "-L", "--level", "-P", "--ignore-glob")
_DU_VALUED = ("-d", "--max-depth", "-t", "--threshold", "-I", "--exclude")

PROGRAMS: Final[dict[str, EffectReader]] = {
    # print, ask or wait; change no file
    **_same_reader(
        "echo printf true false : test [ pwd date whoami hostname uname id printenv "
        "sleep wait kill "
        "exit return set shopt alias umask ulimit jobs fg bg tput clear seq nproc basename dirname "
        "expr let read shift break continue mktemp cd pushd popd export unset local "
        "declare typeset "
        "readonly hash getconf locale tty stty arch sw_vers yes disown pkill killall mapfile "
        "readarray getopts logger bc say afplay pbcopy",
        _silent_effect,
    ),
    **_same_reader(
        "which type whereis ps pgrep top lsof df free uptime man help info ss netstat ifconfig ip "
        "ping dig nslookup host whois history lscpu lsblk dmesg ffprobe "
        "otool nm ldd objdump readelf size sysctl system_profiler tldr go-licenses pbpaste "
        "realpath readlink cal groups users who w last env-list locate mdfind tasklist",
        _listing_effect,
    ),
    # print files
    **_same_reader("cat tac less more zcat bzcat view", file_programs.print_files),
    "nl": partial(file_programs.print_files, valued=("-b", "-s", "-w", "-v", "-n", "-i")),
    **_same_reader("bat batcat", file_programs.bat),
    "head": file_programs.head,
    "tail": file_programs.tail,
    "sed": file_programs.sed,
    "gsed": file_programs.sed,
    **_same_reader("awk gawk mawk nawk", file_programs.awk),
    "perl": file_programs.perl,
    **_same_reader(
        "wc comm paste rev file stat md5sum md5 sha1sum sha256sum cksum cmp delta expand "
        "unexpand tokei cloc sum",
        file_programs.print_parts,
    ),
    "uniq": partial(file_programs.write_second_operand, valued=("-f", "-s", "-w")),
    "xxd": partial(file_programs.write_second_operand, valued=("-l", "-s", "-c", "-g")),
    "cut": partial(file_programs.print_parts, valued=("-d", "-f", "-c", "-b")),
    **_same_reader(
        "column fold fmt pr join col",
        partial(file_programs.print_parts, valued=("-s", "-t", "-w", "-o")),
    ),
    **_same_reader(
        "od hexdump strings",
        partial(file_programs.print_parts, valued=("-N", "-j", "-n", "-s", "-l", "-t", "-A")),
    ),
    **_same_reader(
        "diff colordiff",
        lambda call: replace(
            file_programs.print_parts(call, valued=("-U", "-I", "-x")), content="diff"
        ),
    ),
    **_same_reader(
        "base64 scc shuf",
        partial(
            file_programs.print_parts,
            valued=("-i", "-n", "-w", "-b", "-f"),
            output=("-o", "--output"),
        ),
    ),
    "shasum": partial(file_programs.print_parts, valued=("-a",)),
    "iconv": partial(file_programs.print_parts, valued=("-f", "-t"), output=("-o", "--output")),
    "tr": lambda call: Effect(passed_lines="part") if call.has_input else NO_EFFECT,
    "sort": file_programs.sort,
    **_same_reader("jq yq gojq fx", file_programs.jq),
    # search
    **_same_reader(
        "grep egrep fgrep zgrep", partial(file_programs.search_files, valued=_GREP_VALUED)
    ),
    **_same_reader("rg ag ack ugrep", partial(file_programs.search_files, valued=_RG_VALUED)),
    **_same_reader("ast-grep sg semgrep", build_programs.run_code_search),
    **_same_reader("ls dir", partial(file_programs.list_files, valued=_LS_VALUED)),
    **_same_reader("tree exa eza lsd", partial(file_programs.list_files, valued=_TREE_VALUED)),
    "du": partial(file_programs.list_files, valued=_DU_VALUED),
    **_same_reader("fd fdfind", file_programs.fd),
    **_same_reader("find bfs", file_programs.find),
    # change files
    "tee": file_programs.tee,
    "sponge": file_programs.sponge,
    **_same_reader("cp install ln rsync", file_programs.copy_files),
    "mv": file_programs.move_files,
    **_same_reader("rm unlink shred trash", partial(file_programs.change_files, replaces=True)),
    **_same_reader(
        "mkdir rmdir touch mkfifo",
        partial(file_programs.change_files, valued=("-m", "-r", "-d", "-t")),
    ),
    **_same_reader("chmod chown chgrp", partial(file_programs.change_files, skip=1)),
    "truncate": partial(file_programs.change_files, valued=("-s", "--size", "-r"), replaces=True),
    "patch": file_programs.patch,
    **_same_reader("apply_patch applypatch", file_programs.apply_patch),
    "dd": file_programs.dd,
    **_same_reader("tar bsdtar", file_programs.tar),
    "unzip": file_programs.unzip,
    **_same_reader("gzip gunzip bzip2 bunzip2 xz unxz zstd", file_programs.compress),
    **_same_reader(
        "split csplit zip 7z ed ex dos2unix unix2dos ffmpeg convert magick",
        lambda call: run_effect(call, BARRIER_EFFECT),
    ),
    # git
    "git": git_programs.git,
    "gh": git_programs.gh,
    # test, compile, lint, format
    **_same_reader(
        "pytest py.test jest vitest mocha ava tap rspec minitest ctest phpunit bats nose2 "
        "playwright cypress karma unittest gotestsum nextest behave cucumber",
        build_programs.run_tests,
    ),
    **_same_reader("tox nox", build_programs.run_tox),
    **_same_reader(
        "tsc tsgo gcc g++ clang clang++ cc rustc javac kotlinc swiftc mypy pyright "
        "basedpyright pylint "
        "flake8 shellcheck hadolint yamllint actionlint vet staticcheck vulture bandit gosec "
        "govulncheck deadcode webpack rollup esbuild vite ponyc py_compile compileall "
        "tsup swc errcheck ineffassign gocyclo vale lychee nilaway "
        "depcheck madge publint attw size-limit",
        build_programs.run_compiler,
    ),
    **_same_reader(
        "eslint stylelint oxlint standard xo rubocop markdownlint markdownlint-cli2 "
        "tslint swiftlint "
        "golangci-lint ktlint detekt revive sqlfluff knip misspell codespell",
        build_programs.run_linter,
    ),
    **_same_reader(
        "gofmt goimports gofumpt prettier clang-format shfmt yapf autopep8 gci",
        build_programs.run_printing_formatter,
    ),
    **_same_reader("biome rome", build_programs.run_linter),
    **_same_reader(
        "black isort rustfmt autoflake pyupgrade docformatter swiftformat",
        build_programs.run_formatter,
    ),
    "ruff": build_programs.ruff,
    "buf": partial(
        build_programs.effect_by_verb,
        read_only="--version help",
        runs="lint breaking build",
        writes="generate format mod dep",
    ),
    **_same_reader("make gmake ninja rake nx turbo invoke poe", build_programs.make),
    "cmake": build_programs.cmake,
    "go": build_programs.go,
    "cargo": build_programs.cargo,
    **_same_reader("npm pnpm yarn bun", build_programs.npm),
    **_same_reader("python python3 python2 pypy3", build_programs.python),
    **_same_reader("node deno tsx ts-node ruby php java", build_programs.node),
    **_same_reader(
        "mvn mvnw gradle gradlew dotnet sbt mix swift xcodebuild bazel",
        partial(
            build_programs.effect_by_goals,
            read_only="version help tasks dependencies --version",
            runs="build compile package verify check assemble",
            writes="clean install format new add restore",
            tests_too="test",
        ),
    ),
    **_same_reader(
        "pre-commit protoc dprint taplo lint-staged husky",
        lambda call: run_effect(call, BARRIER_EFFECT),
    ),
    # run other programs
    **_same_reader("builtin nohup setsid unbuffer chronic", wrapper_programs.wrapper),
    **_same_reader("sudo doas", wrapper_programs.sudo),
    **_same_reader("time gtime", wrapper_programs.time_command),
    **_same_reader(
        "nice ionice", partial(wrapper_programs.wrapper, valued=("-n", "-c", "--adjustment"))
    ),
    "stdbuf": partial(wrapper_programs.wrapper, valued=("-i", "-o", "-e")),
    "exec": partial(wrapper_programs.wrapper, valued=("-a",)),
    "caffeinate": partial(wrapper_programs.wrapper, valued=("-t", "-w")),
    "env": wrapper_programs.env,
    **_same_reader(
        "timeout gtimeout",
        partial(wrapper_programs.wrapper, valued=("-s", "-k", "--signal"), skip=1),
    ),
    "command": wrapper_programs.command,
    "xargs": wrapper_programs.xargs,
    **_same_reader("bash sh zsh dash ksh fish", wrapper_programs.shell),
    "eval": wrapper_programs.eval_words,
    "trap": wrapper_programs.trap,
    **_same_reader("mise just task asdf", wrapper_programs.task_runner),
    **_same_reader("npx bunx pnpx", partial(wrapper_programs.package_runner, verb="")),
    **_same_reader("uvx pipx", partial(wrapper_programs.package_runner, verb="")),
    **_same_reader("uv poetry pdm pipenv hatch rye conda", wrapper_programs.package_runner),
    "bundle": partial(wrapper_programs.package_runner, verb="exec"),
    **_same_reader(
        "pip pip3 brew apt apt-get yum dnf apk gem composer snap port luarocks",
        wrapper_programs.package_manager,
    ),
    "rtk": wrapper_programs.rtk,
    **powershell_programs.CMDLETS,
    # reach other machines
    "curl": wrapper_programs.curl,
    "wget": wrapper_programs.wget,
    **_same_reader("docker podman kubectl docker-compose nerdctl", wrapper_programs.container),
    "ssh": wrapper_programs.ssh,
    **_same_reader(
        "systemctl service journalctl launchctl open xdg-open code telnet",
        wrapper_programs.remote_program,
    ),
}


@scoped_cache(4_096)
def effect_of(text: str, cwd: str | None = None, depth: int = 0) -> Effect:
    """The effect of a shell command.
    Raises `UnreadableCommand` for other text.
    """
    if depth > _MAX_SHELL_DEPTH:
        raise UnreadableCommand("it runs shells inside shells")
    if not is_powershell(text):
        return _sequence_effect(parse_command(text, cwd), depth)
    try:
        effect = _sequence_effect(parse_command(text, cwd), depth)
    except UnreadableCommand:
        effect = UNKNOWN_EFFECT
    return effect if effect.known else _powershell_effect(text, cwd, depth)


def _powershell_effect(text: str, cwd: str | None, depth: int) -> Effect:
    """The effect of PowerShell text."""
    if depth > _MAX_SHELL_DEPTH or len(text) > MAX_COMMAND_BYTES:
        return UNKNOWN_EFFECT
    try:
        return _sequence_effect(parse_powershell(text, cwd), depth)
    except UnreadableCommand:
        return UNKNOWN_EFFECT


def effect_of_words(words: tuple[str, ...], cwd: str | None = None) -> Effect:
    """The effect of a command given as words, without a shell."""
    return _program_effect(
        SimpleCommand(tuple(ShellWord(word) for word in words), cwd), has_input=False, depth=0
    )


def _sequence_effect(
    pipelines: tuple[Pipeline, ...], depth: int, has_input: bool = False
) -> Effect:
    """The combined effect of pipelines in sequence."""
    effect: Effect | None = None
    for one in pipelines:
        found = _pipeline_effect(one, depth, has_input)
        effect = found if effect is None else combine_effects(effect, found)
    return effect or NO_EFFECT


def _pipeline_effect(pipeline: Pipeline, depth: int, has_input: bool) -> Effect:
    effect: Effect | None = None
    for stage in pipeline.stages:
        found = _stage_effect(stage, has_input or effect is not None, depth)
        effect = found if effect is None else pipe_effects(effect, found)
    done = effect or NO_EFFECT
    if pipeline.conditional and done.writes:
        done = replace(done, replaces=False)  # the old content may remain
    return hide_output(done) if pipeline.hidden else done


def _stage_effect(stage: SimpleCommand | CommandGroup, has_input: bool, depth: int) -> Effect:
    """The effect of one stage with its redirections."""
    sources = [one for one in stage.redirects if one.operator == "<"]
    has_input = has_input or bool(sources) or stage.text is not None
    if isinstance(stage, CommandGroup):
        effect = _sequence_effect(stage.pipelines, depth, has_input)
    else:
        effect = _program_effect(stage, has_input, depth)
    cwd = stage.cwd
    for source in sources:
        effect = pipe_effects(read_effect(ProgramCall("<", (), cwd), [source.word]), effect)
    for redirect in stage.redirects:
        if redirect.operator != "<":
            effect = _redirect_effect(effect, redirect, cwd)
    return effect


def _redirect_effect(effect: Effect, redirect: Redirect, cwd: str | None) -> Effect:
    """The effect of a command whose output goes to a file."""
    shown = redirect.descriptor not in ("", "1") and not redirect.operator.startswith("&")
    if not shown:
        effect = hide_output(effect)
    if redirect.word.certain and redirect.word.text in STREAMS:
        return effect
    if span_of(redirect.word, cwd) is None:
        return combine_effects(effect, replace(BARRIER_EFFECT, kind="write", known=False))
    replaces = redirect.operator in (">", ">|", "&>", ">&")
    written = write_effect(ProgramCall(">", (), cwd), [redirect.word], replaces=replaces)
    content = effect.content if shown else "edit"
    return replace(combine_effects(effect, written), content=content)


def _program_effect(simple: SimpleCommand, has_input: bool, depth: int) -> Effect:
    """The effect of one program, by the table."""
    first = simple.words[0]
    name = _program_name(first.text)
    reader = PROGRAMS.get(name) if first.certain else None
    if reader is None:
        asks = len(simple.words) == 2 and simple.words[1].text in ("--version", "--help")
        return (
            _unknown_program(simple, name)
            if not asks
            else Effect(kind="read", content="listing", target=name)
        )
    call = ProgramCall(
        name=name,
        args=simple.words[1:],
        cwd=simple.cwd,
        has_input=has_input,
        text=simple.text,
        run=lambda words, cwd: _nested_effect(
            words, cwd, has_input=has_input, text=simple.text, depth=depth
        ),
        script=lambda text, cwd: _script_effect(text, cwd, depth),
        powershell=lambda text, cwd: _powershell_effect(text, cwd, depth + 1),
    )
    effect = reader(call)
    if effect.kind == "run" and any(is_rewrite_variable(name) for name in simple.env):
        return replace(effect, barrier=True)
    return effect


def _program_name(text: str) -> str:
    """The name of a program in the table."""
    windows = text.rpartition("\\")[2].lower()
    if windows in _POWERSHELLS:
        return windows
    installed = "bin/" in text and _INSTALLED.search(text[:500]) is not None
    name = text.rpartition("/")[2] if installed or text in _IN_PROJECT else text
    return "python" if _PYTHON.fullmatch(name) else name


def _unknown_program(simple: SimpleCommand, name: str) -> Effect:
    return run_effect(ProgramCall(name or "a command", simple.words[1:]), UNKNOWN_EFFECT)


def _nested_effect(
    words: tuple[ShellWord, ...], cwd: str | None, *, has_input: bool, text: str | None, depth: int
) -> Effect:
    """The effect of words that another program runs."""
    if depth > _MAX_SHELL_DEPTH:
        return UNKNOWN_EFFECT
    return _program_effect(SimpleCommand(words, cwd, (), text), has_input, depth + 1)


def _script_effect(text: str, cwd: str | None, depth: int) -> Effect:
    """The effect of shell text that another program runs."""
    try:
        return effect_of(text, cwd, depth + 1)
    except UnreadableCommand:
        return UNKNOWN_EFFECT


__all__ = ["PROGRAMS", "effect_of", "effect_of_words"]
