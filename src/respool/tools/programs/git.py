"""`git` and `gh`, by their verbs: what only looks, what changes the repository, what the files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from ..effects import (
    IGNORANCE,
    RUN,
    Call,
    Effect,
    Options,
    called,
    expanded,
    folder_told,
    options,
    ran,
    reading,
    words,
    writing,
)
from ..paths import normal
from ..script import Word
from ..use import Content, Span

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
_REVISION_PATH = re.compile(r"[\w./~^@{}\-]{1,200}:([^:\s].{0,500})")

_LOOKS: Final[dict[str, Content]] = {
    **dict.fromkeys(
        words(
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
_CHANGES_REPOSITORY: Final = words(
    "add commit push fetch gc init config update-ref update-index hash-object "
    "write-tree commit-tree "
    "mktree notes pack-refs prune repack maintenance upload-pack receive-pack send-email "
    "replace rerere credential daemon fast-export index-pack pack-objects unpack-objects mktag "
    "request-pull send-pack fetch-pack remote-http remote-https"
)
_CHANGES_FILES: Final = words(
    "merge rebase pull cherry-pick revert am bisect submodule sparse-checkout filter-branch "
    "checkout-index read-tree lfs subtree restore switch checkout mergetool fast-import"
)


def git(call: Call) -> Effect:
    """Git: the verb decides."""
    call, verb, args = _verb(call)
    if verb is None:
        return ran(call, Effect(kind="read", content="listing"))
    inner = replace(call, name=f"git {verb}", args=args)
    own = _VERBS.get(verb)
    if own is not None:
        return own(inner, options(args, _VALUED))
    if verb in _LOOKS:
        return _looked(inner, _LOOKS[verb])
    if verb in _CHANGES_REPOSITORY:
        return ran(inner)
    return ran(inner, _FILES if verb in _CHANGES_FILES else IGNORANCE)


def _verb(call: Call) -> tuple[Call, str | None, tuple[Word, ...]]:
    """The verb and its words; `-C` says where it runs."""
    words = list(call.args)
    while words and words[0].text.startswith("-"):
        flag = words.pop(0).text
        if flag in ("--version", "--help", "--exec-path"):
            return call, None, ()
        if flag in _BEFORE_VERB and words:
            value = words.pop(0)
            if flag == "-C":
                call = replace(call, cwd=folder_told(call, [value]))
    return (call, words[0].text, tuple(words[1:])) if words else (call, None, ())


def _looked(call: Call, content: Content) -> Effect:
    """Something that only looks; files are those after `--`: before it may be revisions."""
    files = _after_dashes(call.args)
    outputs = options(call.args, (*_VALUED, "--output")).values("--output")
    if outputs:
        return writing(call, outputs, replaces=True)
    effect = reading(replace(call, has_input=False), files, content, part=True)
    if content == "diff" and any(_summary(word.text) for word in call.args):
        effect = replace(effect, content="listing")
    return replace(effect, passed_lines=None, target=called(call))


def _summary(flag: str) -> bool:
    return flag.startswith(("--stat", "--shortstat", "--numstat", "--name-", "--check", "--quiet"))


def _after_dashes(args: Sequence[Word]) -> tuple[Word, ...]:
    at = next((n for n, word in enumerate(args) if word.text == "--"), len(args))
    return tuple(args[at + 1 :])


def _log(call: Call, given: Options) -> Effect:
    patches = given.has("-p", "--patch", "-u")
    return _looked(call, "diff" if patches else "log")


def _show(call: Call, given: Options) -> Effect:
    """A commit's diff, or a file as it was then: that file is named with its revision."""
    names = [word.text for word in given.operands if word.certain]
    files = [name for name in names if _REVISION_PATH.fullmatch(name)]
    if not files:
        return _looked(call, "diff")
    spans = tuple(Span(name) for name in files)
    effect = reading(call, [Word(files[0].rpartition(":")[2])])
    return Effect("read", spans, content=effect.content, target=spans[0].path)


def _format_patch(call: Call, given: Options) -> Effect:
    return _looked(call, "diff") if given.has("--stdout") else ran(call, _FILES)


def _blame(call: Call, _: Options) -> Effect:
    given = options(call.args, ("-L", "-S", "--date", "--since", "--ignore-rev", "--contents"))
    return reading(replace(call, has_input=False), given.operands[-1:], part=True)


def _grep(call: Call, given: Options) -> Effect:
    if any(word.text.startswith(("-O", "--open-files")) for word in call.args):
        return ran(call, IGNORANCE)
    files = _after_dashes(call.args) or given.operands[1:]
    effect = reading(replace(call, has_input=False), files or (Word("."),), "hits", "search", part=True)
    return replace(effect, passed_lines=None)


def _branch(call: Call, given: Options) -> Effect:
    """Lists without a name, changes the repository with one."""
    asks = given.has(
        "--list", "-l", "-a", "-r", "-v", "-vv", "--show-current", "--contains", "--merged"
    )
    if asks or not given.operands:
        return ran(call, Effect(kind="read", content="listing"))
    return ran(call)


def _remote(call: Call, given: Options) -> Effect:
    verb = given.operands[0].text if given.operands else "show"
    looks = verb in ("show", "get-url", "-v")
    return ran(call, Effect(kind="read", content="listing") if looks else RUN)


def _stash(call: Call, given: Options) -> Effect:
    verb = given.operands[0].text if given.operands else "push"
    if verb in ("list", "show"):
        return ran(call, Effect(kind="read", content="diff" if verb == "show" else "listing"))
    return ran(call, RUN if verb in ("drop", "clear", "create", "store") else _FILES)


def _reset(call: Call, given: Options) -> Effect:
    """Only a hard reset changes files."""
    return ran(call, _FILES if given.has("--hard", "--merge", "--keep") else RUN)


def _checkout(call: Call, given: Options) -> Effect:
    """A new branch from here changes no file; files after `--` are known."""
    files = _after_dashes(call.args)
    if files:
        return _pathspecs(call, files)
    new = given.has("-b", "-B", "-c", "-C", "--create", "--orphan")
    return ran(
        call, RUN if new and len(given.operands) < 2 and not _starts_elsewhere(call) else _FILES
    )


def _starts_elsewhere(call: Call) -> bool:
    """Whether a new branch is given a place to start from: the flag's value, and one more word."""
    plain = [word for word in call.args if not word.text.startswith("-") or not word.certain]
    return len(plain) > 1


def _restore(call: Call, _: Options) -> Effect:
    given = options(call.args, ("-s", "--source"))
    if given.has("--staged", "-S") and not given.has("--worktree", "-W"):
        return ran(call)
    return _pathspecs(call, given.operands)


def _pathspecs(call: Call, words: Sequence[Word], replaces: bool = False) -> Effect:
    """Writing what these match below this folder; `:/` counts from another, so it may be any."""
    if any(word.text.startswith(":") for word in words):
        return ran(call, _FILES)
    return writing(call, [expanded(word) for word in words], replaces)


def _apply(call: Call, given: Options) -> Effect:
    if given.has("--check", "--stat", "--numstat", "--summary"):
        return ran(call, Effect(kind="read", content="listing"))
    return ran(call, RUN if given.has("--cached") else _FILES)


def _remove(call: Call, given: Options) -> Effect:
    return (
        ran(call)
        if given.has("--cached", "-n", "--dry-run")
        else _pathspecs(call, given.operands, replaces=True)
    )


def _move(call: Call, given: Options) -> Effect:
    return writing(call, given.operands)


def _clean(call: Call, given: Options) -> Effect:
    return ran(
        call, Effect(kind="read", content="listing") if given.has("-n", "--dry-run") else _FILES
    )


_CLONE: Final = (
    "-b", "--branch", "--depth", "-o", "--origin", "-c", "--config", "--filter", "-j", "--jobs",
    "--reference", "--template", "--shallow-since", "--separate-git-dir",
)  # fmt: skip


def _clone(call: Call, given: Options) -> Effect:
    """A new folder, named or called like the repository."""
    words = options(call.args, _CLONE).operands
    if len(words) > 1:
        return writing(call, words[1:2])
    source = words[0] if words else Word("")
    name = source.text.rstrip("/").removesuffix(".git").rpartition("/")[2]
    return writing(call, [Word(name, source.certain)]) if name else ran(call, _FILES)


def _worktree(call: Call, given: Options) -> Effect:
    words = options(call.args, ("-b", "-B", "--reason")).operands
    verb = words[0].text if words else "list"
    if verb == "list":
        return ran(call, Effect(kind="read", content="listing"))
    named = words[1:] if verb == "move" else words[1:2]
    return writing(call, named) if named else ran(call)


def _config(call: Call, given: Options) -> Effect:
    given = options(call.args, ("-f", "--file", "--type", "--default"))
    looks = given.has("--get", "--list", "-l", "--get-all", "--get-regexp")
    changes = given.has("--unset", "--unset-all", "--add", "--replace-all", "-e", "--edit")
    if looks or (len(given.operands) < 2 and not changes):
        return ran(call, Effect(kind="read", content="listing"))
    files = given.values("-f", "--file")
    return writing(call, files) if files else ran(call)


_FILES: Final = Effect(kind="write", barrier=True, content="log")

_VERBS: Final[dict[str, Callable[[Call, Options], Effect]]] = {
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

_GH_LOOKS = words("view list status checks diff search browse ls get verify watch")
_GH_FILES = words("checkout clone download fork sync develop")


_GH_VALUED: Final = (
    "-R", "--repo", "-q", "--jq", "-t", "--template", "--json", "-X", "--method", "-H", "--header",
    "-f", "-F", "--field", "--raw-field", "--input", "-b", "--body", "--title", "-L", "--limit",
)  # fmt: skip


def gh(call: Call) -> Effect:
    """GitHub's command line: what looks, what changes something there, what changes files here."""
    given = options(
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
        return ran(call, _FILES)
    if verb in _GH_LOOKS or words[:1] in (["search"], ["status"], ["auth"], ["version"]):
        content: Content = "diff" if verb == "diff" else "json" if given.has("--json") else "page"
        return ran(call, Effect(kind="read", content="log" if words[:1] == ["run"] else content))
    return ran(call)


def _gh_api(call: Call, given: Options) -> Effect:
    """A request to GitHub: reads, unless it says or implies another method."""
    methods = [value.text.upper() for value in given.values("-X", "--method")]
    fields = given.values("-f", "-F", "--field", "--raw-field", "--input")
    asks = "graphql" in [word.text for word in given.operands] and not any(
        "mutation" in value.text or not value.certain for value in fields
    )
    if methods[-1:] == ["GET"] or (not methods and (asks or not fields)):
        path = next((word for word in given.operands[1:] if word.certain), None)
        reads = (Span(normal(f"https://api.github.com/{path.text.lstrip('/')}")),) if path else ()
        target = reads[0].path if reads else called(call)
        return Effect("read", reads, content="json", target=target)
    return ran(call)
