"""Effects of programs that run other programs or reach other machines."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from msgspec.structs import replace

from ..paths import normalize
from ..use import Content, Span
from .build_programs import effect_by_verb, run_task
from .effects import (
    BARRIER_EFFECT,
    NO_EFFECT,
    RUN_EFFECT,
    UNKNOWN_EFFECT,
    Effect,
    ProgramCall,
    combine_effects,
    command_label,
    hide_output,
    is_rewrite_variable,
    parse_options,
    run_effect,
    word_set,
    working_folder,
    write_effect,
)
from .parser import ShellWord


def wrapper(call: ProgramCall, valued: Sequence[str] = (), skip: int = 0) -> Effect:
    """Effect of `nohup`, `timeout 5`: that of the command after its flags."""
    words, sets = _after_flags(call.args, valued)
    effect = call.run_words(words[skip:])
    anew = effect.kind == "run" and any(is_rewrite_variable(name) for name in sets)
    return replace(effect, barrier=True) if anew else effect


def _after_flags(
    args: Sequence[ShellWord], valued: Sequence[str]
) -> tuple[list[ShellWord], list[str]]:
    """The words after flags and assignments, and the assigned names."""
    words, sets = list(args), list[str]()
    while words and (words[0].text.startswith("-") or "=" in words[0].text):
        flag = words.pop(0).text
        if flag == "--":
            break
        if flag in valued and words:
            words.pop(0)
        elif not flag.startswith("-"):
            sets.append(flag.partition("=")[0])
    return words, sets


_SUDO = ("-u", "-g", "-p", "-C", "-D", "-R", "-T", "-U", "-r", "-t", "--user", "--group", "--chdir")


def sudo(call: ProgramCall) -> Effect:
    """Effect of `sudo`: that of its command; its own shell or editor may do anything."""
    words, _ = _after_flags(call.args, _SUDO)
    own = parse_options(call.args[: len(call.args) - len(words)], _SUDO)
    alone = not words and own.has("-i", "-s", "--login", "--shell")
    if own.has("-e", "--edit") or alone:
        return run_effect(call, UNKNOWN_EFFECT)
    return wrapper(replace(call, cwd=working_folder(call, own.values("-D", "--chdir"))), _SUDO)


def time_command(call: ProgramCall) -> Effect:
    """Effect of `time`: that of its command, and a file for the timing."""
    words, _ = _after_flags(call.args, ("-o", "-f", "--output", "--format"))
    own = call.args[: len(call.args) - len(words)]
    outputs = parse_options(own, ("-o", "--output", "-f", "--format")).values("-o", "--output")
    effect = call.run_words(words)
    return combine_effects(effect, hide_output(write_effect(call, outputs))) if outputs else effect


def env(call: ProgramCall) -> Effect:
    """Effect of `env`: that of its command; `-S` holds one as text."""
    valued = ("-u", "-C", "--unset", "--chdir")
    words, _ = _after_flags(call.args, valued)
    own = parse_options(call.args[: len(call.args) - len(words)], valued)
    split = any(word.text.startswith(("-S", "--split-string")) for word in call.args)
    here = replace(call, cwd=working_folder(call, own.values("-C", "--chdir")))
    return UNKNOWN_EFFECT if split else wrapper(here, valued)


def command(call: ProgramCall) -> Effect:
    """Effect of `command`; `-v` only looks a program up."""
    if call.args and call.args[0].text in ("-v", "-V"):
        return Effect(kind="search", content="listing", target=command_label(call))
    return wrapper(call)


def xargs(call: ProgramCall) -> Effect:
    """Effect of `xargs`: that of its command with unknown operands."""
    words = list(call.args)
    placeholder = ""
    while words and words[0].text.startswith("-"):
        flag = words.pop(0).text
        value = words.pop(0).text if flag in _XARGS and words else ""
        placeholder = _xargs_placeholder(flag, value) or placeholder
    unsure = ShellWord("", certain=False)
    if not words:
        return Effect(passed_lines="part")
    given = [unsure if placeholder and placeholder in word.text else word for word in words]
    inner = replace(call, has_input=False).run_words([*given, *([] if placeholder else [unsure])])
    return replace(inner, passed_lines=None)


_XARGS = (
    "-n", "-P", "-I", "-J", "-L", "-d", "-s", "-E", "-a", "--max-args", "--max-procs",
    "--max-lines", "--delimiter", "--arg-file",
)  # fmt: skip


def _xargs_placeholder(flag: str, value: str) -> str:
    """The placeholder for an input line in the words `xargs` runs: `-I{}`, `-I %`, `-i`."""
    for name in ("-I", "-J", "-i", "--replace"):
        if flag.startswith(name):
            joined = flag.removeprefix(name).removeprefix("=")
            return joined or value or ("{}" if name in ("-i", "--replace") else "")
    return ""


def shell(call: ProgramCall) -> Effect:
    """Effect of a shell: `-c` runs its text, `-n` only parses, `<<EOF` runs its input."""
    words = list(call.args)
    while words and words[0].text[:1] in ("-", "+") and words[0].text != "-":
        flag = words.pop(0).text
        if flag in ("-n", "--version"):
            return run_effect(call)
        if flag in ("-o", "+o", "-O") and words:
            words.pop(0)
        elif "c" in flag and not flag.startswith("--"):
            known = bool(words) and words[0].certain
            return call.run_script(words[0].text) if known else UNKNOWN_EFFECT
    if call.text is not None and words[:1] in ([], [ShellWord("-")]):
        return call.run_script(call.text)
    return run_effect(call, UNKNOWN_EFFECT)


def eval_words(call: ProgramCall) -> Effect:
    """Effect of `eval`, if all its words are known."""
    if all(word.certain for word in call.args):
        return call.run_script(" ".join(word.text for word in call.args))
    return UNKNOWN_EFFECT


def trap(call: ProgramCall) -> Effect:
    """Effect of `trap`: that of its command, which runs later."""
    text = call.args[0] if call.args else ShellWord("-")
    if text.text in ("-", ""):
        return NO_EFFECT if text.certain else UNKNOWN_EFFECT
    return hide_output(call.run_script(text.text)) if text.certain else UNKNOWN_EFFECT


def task_runner(call: ProgramCall) -> Effect:
    """Effect of `mise`, `just`, `task`: own verbs, a program after `--`, or a task by name."""
    texts = [word.text for word in call.args]
    if texts[:1] in (["exec"], ["x"]):
        at = texts.index("--") if "--" in texts else 0
        return call.run_words(call.args[at + 1 :])
    read_only = {
        "ls",
        "list",
        "tasks",
        "current",
        "where",
        "which",
        "doctor",
        "version",
        "env",
        "settings",
    }
    if texts[:1] and (
        texts[0] in read_only or texts[0] in ("--version", "--list", "-l", "--summary")
    ):
        return run_effect(call, Effect(kind="read", content="listing"))
    if call.name == "mise" and texts[:1] not in (["run"], ["r"]):
        return run_effect(
            call,
            BARRIER_EFFECT if texts[:1] in (["install"], ["use"], ["trust"]) else UNKNOWN_EFFECT,
        )
    rest = texts[1:] if texts[:1] in (["run"], ["r"]) else texts
    names = [text for text in rest if not text.startswith("-") and "=" not in text]
    return run_task(call, names[0]) if names else run_effect(call, UNKNOWN_EFFECT)


def package_runner(call: ProgramCall, verb: str = "run") -> Effect:
    """Effect of `uv run`, `poetry run`, `npx`: that of the program they run."""
    words, folders = list(call.args), list[ShellWord]()
    if verb:
        if words and words[0].text == "pip":
            return package_manager(replace(call, name=f"{call.name} pip", args=tuple(words[1:])))
        if not words or words[0].text != verb:
            return effect_by_verb(
                call,
                read_only="list show tree version help config",
                runs="build check",
                writes=_INSTALLS,
            )
        words.pop(0)
    while words and words[0].text.startswith("-"):
        flag = words.pop(0).text
        if flag in _RUNNER and words:
            value = words.pop(0)
            folders += [value] if flag == "--directory" else []
    if not words:
        return UNKNOWN_EFFECT
    name = words[0].text.rpartition("/")[2].partition("@")[0] or words[0].text
    return call.run_words(
        [ShellWord(name, words[0].certain), *words[1:]], working_folder(call, folders)
    )


_RUNNER = (
    "-p", "--package", "--with", "--python", "--directory", "--project", "--env-file", "--extra",
    "--group", "--with-requirements", "--with-editable", "--only-group",
)  # fmt: skip
_INSTALLS = (
    "install add remove sync lock update upgrade pip venv init self tool export publish new build "
    "uninstall i cleanup tap link unlink require create"
)


def package_manager(call: ProgramCall) -> Effect:
    """Effect of a package manager: read-only verbs, otherwise a barrier."""
    return effect_by_verb(
        call,
        read_only="list show search info freeze check outdated deps uses desc cat help config",
        runs="download audit",
        writes=f"{_INSTALLS} bundle dump autoremove full-upgrade purge",
    )


def container(call: ProgramCall) -> Effect:
    """Effect of `docker` and `kubectl`: read-only, remote, or possibly local files."""
    words = [word.text for word in parse_options(call.args, _CONTAINER_VALUED).operands]
    verb = (
        words[1]
        if words[:1] in (["compose"], ["image"], ["container"], ["config"]) and words[1:]
        else (words or [""])[0]
    )
    if verb == "exec":
        return run_effect(call, _remote_effect(_container_exec(call)))
    if verb in ("run", "cp", "debug"):
        return run_effect(call, UNKNOWN_EFFECT)
    outputs = parse_options(call.args, ("-o", "--output")).values("-o", "--output")
    if outputs and call.name != "kubectl":
        return combine_effects(run_effect(call), hide_output(write_effect(call, outputs)))
    if verb in _CONTAINER_LOOKS or not verb:
        content: Content = "log" if verb == "logs" else "json" if verb == "inspect" else "listing"
        return run_effect(call, Effect(kind="read", content=content))
    return run_effect(call, RUN_EFFECT if verb in _CONTAINER_RUNS else UNKNOWN_EFFECT)


_EXEC = (
    "-e", "--env", "-u", "--user", "-w", "--workdir", "-c", "--container", "-n", "--namespace",
    "-f", "--file", "-p", "--project-name", "--index", "--env-file", "--detach-keys",
)  # fmt: skip


def _container_exec(call: ProgramCall) -> Effect:
    """Effect of `exec` in a container: that of the words after its name, or after `--`."""
    at = next(n for n, word in enumerate(call.args) if word.text == "exec")
    words, _ = _after_flags(call.args[at + 1 :], _EXEC)
    words, _ = _after_flags(words[1:], _EXEC)
    return call.run_words(words) if words else UNKNOWN_EFFECT


def _remote_effect(effect: Effect) -> Effect:
    """The local effect of a remote command: no known files; a barrier if it writes."""
    writes = effect.barrier or effect.writes or effect.kind == "write"
    if writes:
        return replace(BARRIER_EFFECT, known=effect.known)
    return Effect("run", content=effect.content)


_CONTAINER_LOOKS = word_set(
    "ps images logs inspect version info stats top port history search ls list get "
    "describe explain "
    "api-resources cluster-info view diff events config api-versions df current-context"
)
_CONTAINER_RUNS = word_set(
    "build builder buildx pull push up down start stop restart rm rmi kill create tag "
    "login logout pause unpause wait attach rename update commit prune network volume system "
    "context apply delete scale rollout set label annotate port-forward expose autoscale cordon "
    "uncordon drain taint auth patch replace proxy swarm stack service node secret remove "
    "use-context set-context set-cluster load import certificate"
)
_CONTAINER_VALUED = (
    "-f", "--file", "-n", "--namespace", "-p", "--project-name", "--profile", "--env-file",
    "--project-directory", "--context", "-H", "--host", "--log-level", "--kubeconfig", "--ansi",
    "--progress", "--cluster", "--user",
)  # fmt: skip


_CURL_VALUED = (
    "-o", "--output", "-X", "--request", "-H", "--header", "-d", "--data", "--data-raw", "-F",
    "--data-binary", "--form", "-u", "--user", "-A", "-e", "-b", "-c", "-m", "--max-time", "-w",
    "--connect-timeout", "--write-out", "--retry", "-T", "-x", "--json", "--data-urlencode", "-K",
    "-D", "--cacert", "--cert", "--key", "--resolve", "--dump-header", "--cookie-jar", "--trace",
    "--trace-ascii", "--stderr", "--output-dir", "--etag-save", "--config", "--cookie", "--proxy",
    "--upload-file", "--user-agent", "--referer", "--limit-rate", "--url",
)  # fmt: skip
_CURL_WRITES = (
    "-D", "--dump-header", "-c", "--cookie-jar", "--trace", "--trace-ascii", "--stderr",
    "--etag-save",
)  # fmt: skip


def curl(call: ProgramCall) -> Effect:
    """Effect of `curl`: reads a URL, unless it sends or writes something."""
    given = parse_options(call.args, _CURL_VALUED)
    if given.has("-K", "--config"):
        return run_effect(call, UNKNOWN_EFFECT)
    urls = [word for word in (*given.operands, *given.values("--url")) if word.certain]
    reads = tuple(Span(_url(word.text)) for word in urls)
    sends = given.has("-d", "--data", "--data-raw", "--data-binary", "-F", "--form", "-T", "--json")
    method = [value.text.upper() for value in given.values("-X", "--request")][-1:]
    target = reads[0].path if reads else "curl"
    effect = Effect("read", reads, content="page", target=target)
    if (sends and method != ["GET"]) or method not in ([], ["GET"], ["HEAD"]):
        effect = Effect("run", content="page", target=target)
    outputs = list(given.values("-o", "--output"))
    if given.has("-O", "--remote-name", "--remote-name-all", "-J"):
        outputs += [ShellWord(posixpath.basename(word.text)) for word in urls] or [
            ShellWord("", certain=False)
        ]
    for folder in given.values("--output-dir")[-1:]:
        outputs = [
            ShellWord(f"{folder.text}/{word.text}", folder.certain and word.certain)
            for word in outputs
        ]
    outputs += given.values(*_CURL_WRITES)
    hidden = given.has("-o", "--output", "-O", "--remote-name", "--remote-name-all")
    if not outputs:
        return effect
    return combine_effects(
        hide_output(effect) if hidden else effect, write_effect(call, outputs, replaces=True)
    )


def _url(text: str) -> str:
    return normalize(text if "://" in text else f"http://{text}")


def wget(call: ProgramCall) -> Effect:
    """Effect of `wget`: writes a file, unless it prints."""
    given = parse_options(
        call.args, ("-O", "--output-document", "-P", "-o", "--header", "-T", "-t")
    )
    urls = [word for word in given.operands if word.certain]
    outputs = list(given.values("-O", "--output-document"))
    if not outputs:
        outputs = [ShellWord(posixpath.basename(word.text.rstrip("/"))) for word in urls]
    reads = tuple(Span(_url(word.text)) for word in urls)
    target = reads[0].path if reads else "wget"
    if outputs and outputs[-1].text == "-":
        return Effect("read", reads, content="page", target=target)
    recursive = given.has("-r", "-m", "-P", "--recursive", "--mirror") or not outputs
    return (
        run_effect(call, BARRIER_EFFECT)
        if recursive
        else write_effect(call, outputs, replaces=True)
    )


_SSH = (
    "-i", "-p", "-l", "-o", "-F", "-J", "-L", "-R", "-D", "-W", "-b", "-c", "-E", "-e", "-m", "-S",
    "-w",
)  # fmt: skip


def ssh(call: ProgramCall) -> Effect:
    """Effect of `ssh`: that of its remote command; an interactive shell may do anything."""
    words = list(call.args)
    while words and words[0].text.startswith("-"):
        if words.pop(0).text in _SSH and words:
            words.pop(0)
    if words[1:] and all(word.certain for word in words[1:]):
        text = " ".join(word.text for word in words[1:])
        has_input = call.text is not None or call.has_input
        inner = call.run_words(words[1:]) if has_input else call.run_script(text)
        return run_effect(call, _remote_effect(inner))
    return run_effect(call, UNKNOWN_EFFECT)


def remote_program(call: ProgramCall) -> Effect:
    """Effect of a program that runs on another machine."""
    return run_effect(call, RUN_EFFECT)


def rtk(call: ProgramCall) -> Effect:
    """Effect of `rtk`: that of its program, whose output it shortens."""
    words = call.args
    if words[:1] and words[0].text == "read":
        return call.run_words([ShellWord("cat"), *words[1:]])
    skipped = words[1:2] and words[0].text in ("proxy", "lint", "err", "test", "summary")
    return call.run_words(words[1:] if skipped else words)
