"""Effects of `git` and `gh`, by verb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from ...regex import lazy_compile
from ..paths import normalize
from ..use import Content, Span
from .effects import (
    RUN_EFFECT,
    UNKNOWN_EFFECT,
    Effect,
    ParsedOptions,
    ProgramCall,
    command_label,
    expand_pattern,
    parse_options,
    read_effect,
    run_effect,
    word_set,
    working_folder,
    write_effect,
)
from .parser import ShellWord

_BEFORE_VERB: Final = (
    "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env",
)  # fmt: skip
_VALUED: Final = (
    "-n",
    "-S",
    "-G",
    "--format",
    "--pretty",
    "-m",
    "-F",
    "--since",
    "--author",
    "-b",
    "-B",
)
_REVISION_PATH = lazy_compile(r"[\w./~^@{}\-]{1,200}:([^:\s].{0,500})")

_LOOK_VERBS: Final[dict[str, Content]] = {
    **dict.fromkeys(
        word_set(
            "status ls-files ls-tree rev-parse rev-list merge-base describe for-each-ref show-ref "
            "ls-remote check-ignore cat-file var version help shortlog name-rev "
            "count-objects reflog "
            "cherry symbolic-ref whatchanged check-attr verify-commit verify-tag fsck --version "
            "--exec-path --help range-diff check-ref-format get-tar-commit-id"
        ),
        "listing",
    ),
    **dict.fromkeys(("diff", "diff-tree", "diff-index", "diff-files"), "diff"),
    "log": "log",
}
_REPOSITORY_VERBS: Final = word_set(
    "add commit push fetch gc init config update-ref update-index hash-object "
    "write-tree commit-tree "
    "mktree notes pack-refs prune repack maintenance upload-pack receive-pack send-email "
    "replace rerere credential daemon fast-export index-pack pack-objects unpack-objects mktag "
    "request-pull send-pack fetch-pack remote-http remote-https"
)
_FILE_VERBS: Final = word_set(
    "merge rebase pull cherry-pick revert am bisect submodule sparse-checkout filter-branch "
    "checkout-index read-tree lfs subtree restore switch checkout mergetool fast-import"
)


def git(call: ProgramCall) -> Effect:
    """Effect of `git`, by verb."""
    call, verb, args = _verb(call)
    if verb is None:
        return run_effect(call, Effect(kind="read", content="listing"))
    inner = replace(call, name=f"git {verb}", args=args)
    own = _VERBS.get(verb)
    if own is not None:
        return own(inner, parse_options(args, _VALUED))
    if verb in _LOOK_VERBS:
        return _look_effect(inner, _LOOK_VERBS[verb])
    if verb in _REPOSITORY_VERBS:
        return run_effect(inner)
    return run_effect(inner, _FILES if verb in _FILE_VERBS else UNKNOWN_EFFECT)


def _verb(call: ProgramCall) -> tuple[ProgramCall, str | None, tuple[ShellWord, ...]]:
    """The verb and its words; `-C` sets the folder."""
    words = list(call.args)
    while words and words[0].text.startswith("-"):
        flag = words.pop(0).text
        if flag in ("--version", "--help", "--exec-path"):
            return call, None, ()
        if flag in _BEFORE_VERB and words:
            value = words.pop(0)
            if flag == "-C":
                call = replace(call, cwd=working_folder(call, [value]))
    return (call, words[0].text, tuple(words[1:])) if words else (call, None, ())


def _look_effect(call: ProgramCall, content: Content) -> Effect:
    """Effect of a read-only verb; only words after `--` are surely files."""
    files = _after_dashes(call.args)
    outputs = parse_options(call.args, (*_VALUED, "--output")).values("--output")
    if outputs:
        return write_effect(call, outputs, replaces=True)
    effect = read_effect(replace(call, has_input=False), files, content=content, part=True)
    if content == "diff" and any(_is_summary_flag(word.text) for word in call.args):
        effect = replace(effect, content="listing")
    return replace(effect, passed_lines=None, target=command_label(call))


def _is_summary_flag(flag: str) -> bool:
    return flag.startswith(("--stat", "--shortstat", "--numstat", "--name-", "--check", "--quiet"))


def _after_dashes(args: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    at = next((n for n, word in enumerate(args) if word.text == "--"), len(args))
    return tuple(args[at + 1 :])


def _log(call: ProgramCall, given: ParsedOptions) -> Effect:
    patches = given.has("-p", "--patch", "-u")
    return _look_effect(call, "diff" if patches else "log")


def _show(call: ProgramCall, given: ParsedOptions) -> Effect:
    """Effect of `git show`: a commit's diff, or a file at a revision, named with it."""
    names = [word.text for word in given.operands if word.certain]
    files = [name for name in names if _REVISION_PATH.fullmatch(name)]
    if not files:
        return _look_effect(call, "diff")
    spans = tuple(Span(name) for name in files)
    effect = read_effect(call, [ShellWord(files[0].rpartition(":")[2])])
    return Effect("read", spans, content=effect.content, target=spans[0].path)


def _format_patch(call: ProgramCall, given: ParsedOptions) -> Effect:
    return _look_effect(call, "diff") if given.has("--stdout") else run_effect(call, _FILES)


def _blame(call: ProgramCall, _: ParsedOptions) -> Effect:
    given = parse_options(
        call.args, ("-L", "-S", "--date", "--since", "--ignore-rev", "--contents")
    )
    return read_effect(replace(call, has_input=False), given.operands[-1:], part=True)


def _grep(call: ProgramCall, given: ParsedOptions) -> Effect:
    if any(word.text.startswith(("-O", "--open-files")) for word in call.args):
        return run_effect(call, UNKNOWN_EFFECT)
    files = _after_dashes(call.args) or given.operands[1:]
    effect = read_effect(
        replace(call, has_input=False),
        files or (ShellWord("."),),
        content="hits",
        kind="search",
        part=True,
    )
    return replace(effect, passed_lines=None)


def _branch(call: ProgramCall, given: ParsedOptions) -> Effect:
    """Effect of `git branch`: lists, or changes the repository if a name is given."""
    asks = given.has(
        "--list", "-l", "-a", "-r", "-v", "-vv", "--show-current", "--contains", "--merged"
    )
    if asks or not given.operands:
        return run_effect(call, Effect(kind="read", content="listing"))
    return run_effect(call)


def _remote(call: ProgramCall, given: ParsedOptions) -> Effect:
    verb = given.operands[0].text if given.operands else "show"
    read_only = verb in ("show", "get-url", "-v")
    return run_effect(call, Effect(kind="read", content="listing") if read_only else RUN_EFFECT)


def _stash(call: ProgramCall, given: ParsedOptions) -> Effect:
    verb = given.operands[0].text if given.operands else "push"
    if verb in ("list", "show"):
        return run_effect(
            call, Effect(kind="read", content="diff" if verb == "show" else "listing")
        )
    return run_effect(call, RUN_EFFECT if verb in ("drop", "clear", "create", "store") else _FILES)


def _reset(call: ProgramCall, given: ParsedOptions) -> Effect:
    """Effect of `git reset`; only a hard reset changes files."""
    return run_effect(call, _FILES if given.has("--hard", "--merge", "--keep") else RUN_EFFECT)


def _checkout(call: ProgramCall, given: ParsedOptions) -> Effect:
    """Effect of `git checkout`: a new branch changes no file; files after `--` are known."""
    files = _after_dashes(call.args)
    if files:
        return _pathspecs(call, files)
    new = given.has("-b", "-B", "-c", "-C", "--create", "--orphan")
    return run_effect(
        call,
        RUN_EFFECT if new and len(given.operands) < 2 and not _has_start_point(call) else _FILES,
    )


def _has_start_point(call: ProgramCall) -> bool:
    """Check whether a new branch has a start point: a word beside the flag's value."""
    plain = [word for word in call.args if not word.text.startswith("-") or not word.certain]
    return len(plain) > 1


def _restore(call: ProgramCall, _: ParsedOptions) -> Effect:
    given = parse_options(call.args, ("-s", "--source"))
    if given.has("--staged", "-S") and not given.has("--worktree", "-W"):
        return run_effect(call)
    return _pathspecs(call, given.operands)


def _pathspecs(call: ProgramCall, words: Sequence[ShellWord], replaces: bool = False) -> Effect:
    """Effect of writing what these pathspecs match; `:/` starts at the root: any file."""
    if any(word.text.startswith(":") for word in words):
        return run_effect(call, _FILES)
    return write_effect(call, [expand_pattern(word) for word in words], replaces)


def _apply(call: ProgramCall, given: ParsedOptions) -> Effect:
    if given.has("--check", "--stat", "--numstat", "--summary"):
        return run_effect(call, Effect(kind="read", content="listing"))
    return run_effect(call, RUN_EFFECT if given.has("--cached") else _FILES)


def _remove(call: ProgramCall, given: ParsedOptions) -> Effect:
    return (
        run_effect(call)
        if given.has("--cached", "-n", "--dry-run")
        else _pathspecs(call, given.operands, replaces=True)
    )


def _move(call: ProgramCall, given: ParsedOptions) -> Effect:
    return write_effect(call, given.operands)


def _clean(call: ProgramCall, given: ParsedOptions) -> Effect:
    return run_effect(
        call, Effect(kind="read", content="listing") if given.has("-n", "--dry-run") else _FILES
    )


_CLONE: Final = (
    "-b", "--branch", "--depth", "-o", "--origin", "-c", "--config", "--filter", "-j", "--jobs",
    "--reference", "--template", "--shallow-since", "--separate-git-dir",
)  # fmt: skip


def _clone(call: ProgramCall, given: ParsedOptions) -> Effect:
    """Effect of `git clone`: a new folder, named or called like the repository."""
    words = parse_options(call.args, _CLONE).operands
    if len(words) > 1:
        return write_effect(call, words[1:2])
    source = words[0] if words else ShellWord("")
    name = source.text.rstrip("/").removesuffix(".git").rpartition("/")[2]
    return (
        write_effect(call, [ShellWord(name, source.certain)]) if name else run_effect(call, _FILES)
    )


def _worktree(call: ProgramCall, given: ParsedOptions) -> Effect:
    words = parse_options(call.args, ("-b", "-B", "--reason")).operands
    verb = words[0].text if words else "list"
    if verb == "list":
        return run_effect(call, Effect(kind="read", content="listing"))
    named = words[1:] if verb == "move" else words[1:2]
    return write_effect(call, named) if named else run_effect(call)


def _config(call: ProgramCall, given: ParsedOptions) -> Effect:
    given = parse_options(call.args, ("-f", "--file", "--type", "--default"))
    read_only = given.has("--get", "--list", "-l", "--get-all", "--get-regexp")
    changes = given.has("--unset", "--unset-all", "--add", "--replace-all", "-e", "--edit")
    if read_only or (len(given.operands) < 2 and not changes):
        return run_effect(call, Effect(kind="read", content="listing"))
    files = given.values("-f", "--file")
    return write_effect(call, files) if files else run_effect(call)


_FILES: Final = Effect(kind="write", barrier=True, content="log")

_VERBS: Final[dict[str, Callable[[ProgramCall, ParsedOptions], Effect]]] = {
    "log": _log,
    "show": _show,
    "format-patch": _format_patch,
    "blame": _blame,
    "annotate": _blame,
    "grep": _grep,
    "branch": _branch,
    "tag": _branch,
    "remote": _remote,
    "stash": _stash,
    "reset": _reset,
    "checkout": _checkout,
    "switch": _checkout,
    "restore": _restore,
    "apply": _apply,
    "rm": _remove,
    "mv": _move,
    "clean": _clean,
    "clone": _clone,
    "worktree": _worktree,
    "config": _config,
}

_GH_LOOKS = word_set("view list status checks diff search browse ls get verify watch")
_GH_FILES = word_set("checkout clone download fork sync develop")


_GH_VALUED: Final = (
    "-R", "--repo", "-q", "--jq", "-t", "--template", "--json", "-X", "--method", "-H", "--header",
    "-f", "-F", "--field", "--raw-field", "--input", "-b", "--body", "--title", "-L", "--limit",
)  # fmt: skip


def gh(call: ProgramCall) -> Effect:
    """Effect of `gh`: read-only, remote changes, or local changes."""
    given = parse_options(
        call.args,
        _GH_VALUED,
    )
    words = [word.text for word in given.operands]
    if words[:1] == ["api"]:
        return _gh_api(call, given)
    verb = words[0] if words else "status"
    if len(words) > 1 and words[0] != "search":
        verb = words[1]
    if verb in _GH_FILES or (verb == "merge" and given.has("-d", "--delete-branch")):
        return run_effect(call, _FILES)
    if verb in _GH_LOOKS or words[:1] in (["search"], ["status"], ["auth"], ["version"]):
        content: Content = "diff" if verb == "diff" else "json" if given.has("--json") else "page"
        return run_effect(
            call, Effect(kind="read", content="log" if words[:1] == ["run"] else content)
        )
    return run_effect(call)


def _gh_api(call: ProgramCall, given: ParsedOptions) -> Effect:
    """Effect of `gh api`: reads, unless its method is another one."""
    methods = [value.text.upper() for value in given.values("-X", "--method")]
    fields = given.values("-f", "-F", "--field", "--raw-field", "--input")
    asks = "graphql" in [word.text for word in given.operands] and not any(
        "mutation" in value.text or not value.certain for value in fields
    )
    if methods[-1:] == ["GET"] or (not methods and (asks or not fields)):
        path = next((word for word in given.operands[1:] if word.certain), None)
        reads = (
            (Span(normalize(f"https://api.github.com/{path.text.lstrip('/')}")),) if path else ()
        )
        target = reads[0].path if reads else command_label(call)
        return Effect("read", reads, content="json", target=target)
    return run_effect(call)
