"""Generated parts of the docs: settings, reasons, problems, commands, metrics and snippets.

    python -m docs.generate [--check]

A page holds generated blocks between `<!-- generated: NAME -->` and `<!-- end -->`. Everything
around them is written by hand.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from respool.cli import main as respool_command
from respool.config import word_for_none
from respool.edits import REASON_SPECS
from respool.errors import MAX_VALUE
from respool.policy import ADVANCED, SETTINGS, Policy, SettingSpec
from respool.providers.base import RuleSpec
from respool.proxy.metrics import METRICS
from respool.proxy.middleware import FALLBACK_REASONS

PAGES: Final = Path(__file__).resolve().parent
SNIPPETS: Final = PAGES / "snippets" / "frameworks"
_BLOCK: Final = re.compile(r"<!-- generated: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
_POLICY_OPTIONS: Final = ("--preset", "--policy", "--set", "--text")
_COMMON_OPTIONS: Final = ("--format", "--json", "--store")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a Markdown table."""
    lines = [f"| {' | '.join(_escape(cell) for cell in row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def settings(advanced: bool) -> str:
    """Render the normal or the advanced settings."""
    head = ("setting", "default", "allowed", "meaning")
    chosen = [one for one in SETTINGS if (one.name in ADVANCED) == advanced]
    return table(head, [_setting_row(one) for one in chosen])


def _setting_row(setting: SettingSpec) -> tuple[str, str, str, str]:
    allowed = setting.allowed.replace(f" from 0 to {MAX_VALUE:,}", "").replace(
        " (None in code)", ""
    )
    allowed = allowed.replace(f" to {MAX_VALUE:,}", " on").replace(
        " (in the environment also on or off)", ""
    )
    allowed = allowed.replace(", none of them empty", "").replace(", each at most once", "")
    return _code(setting.name), _code(_default(setting.name)), allowed, setting.description


def _default(name: str) -> str:
    value = getattr(Policy(), name)
    if name == "tools":
        return "none"
    return word_for_none(name) if value is None else _toml(value)


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:_}"
        case tuple():
            return "[" + ", ".join(f'"{one}"' for one in value) + "]"
        case _:
            return str(value)


def reasons() -> str:
    """Render every reason code of an edit."""
    rows = [
        (_code(one.code), ", ".join(map(_code, one.passes)) or "–", one.meaning, _code(one.example))
        for one in REASON_SPECS
    ]
    return table(("reason", "pass", "meaning", "evidence, for example"), rows)


def problems(provider: str) -> str:
    """Render the rules of one provider."""
    specs: tuple[RuleSpec, ...] = import_module(f"respool.providers.{provider}.check").RULE_SPECS
    head = ("code", "what the provider demands", "severity", "repair")
    return table(head, [(_code(s.code), s.requirement, s.severity, s.repair or "–") for s in specs])


def policy_options() -> str:
    """Render the options that all commands with a policy share."""
    explain = respool_command.commands["explain"]
    return _option_table(explain, lambda option: option in _POLICY_OPTIONS)


def common_options() -> str:
    """Render the options that mean the same in every command that has them."""
    commands = respool_command.commands
    rows = [
        row
        for command, chosen in (("check", _COMMON_OPTIONS[:2]), ("expand", _COMMON_OPTIONS[2:]))
        for row in _option_rows(commands[command], chosen.__contains__)
    ]
    return table(("option", "effect"), rows)


def commands() -> str:
    """Render every command with its own options."""
    return "\n\n".join(
        _command(name, one)
        for first, command in sorted(respool_command.commands.items())
        for name, one in _with_subcommands(first, command)
    )


def _with_subcommands(name: str, command: click.Command) -> list[tuple[str, click.Command]]:
    inner = command.commands if isinstance(command, click.Group) else {}
    return [(name, command), *((f"{name} {one}", inner[one]) for one in sorted(inner))]


def _command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"respool {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    policy = _POLICY_OPTIONS if "--set" in _options(command) else ()
    common = [option for option in _COMMON_OPTIONS if option in _options(command)]
    own = _option_table(command, lambda option: option not in (*policy, *common))
    also = [f"[`{option}`](#common-options)" for option in common]
    also += ["the [policy options](#policy-options)"] if policy else []
    parts = [f"### respool {name}", f"`respool {name} {usage}`", _help(command), own]
    if also:
        parts.append(f"{'Also' if own else 'Options:'} {_listed(also)}.")
    return "\n\n".join(part for part in parts if part)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _help(command: click.Command) -> str:
    text = (command.help or "").replace("\b", "")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _options(command: click.Command) -> dict[str, click.Option]:
    return {one.opts[-1]: one for one in command.params if isinstance(one, click.Option)}


def _option_table(command: click.Command, chosen: Callable[[str], bool]) -> str:
    rows = _option_rows(command, chosen)
    return table(("option", "effect"), rows) if rows else ""


def _option_rows(command: click.Command, chosen: Callable[[str], bool]) -> list[tuple[str, str]]:
    context = click.Context(command)
    return [
        _option_row(option, context)
        for name, option in _options(command).items()
        if chosen(name) and not option.hidden
    ]


def _option_row(option: click.Option, context: click.Context) -> tuple[str, str]:
    """Render an option; choices stand in the text, since a pipe would end a cell."""
    name, text = option.get_help_record(context) or ("", "")
    text = re.sub(r"\s+\[.*\]$", "", text)
    if isinstance(option.type, click.Choice):
        name = f"{name.partition('[')[0]}NAME"
        text += f" One of {', '.join(map(_code, option.type.choices))}."
    if option.show_default and option.default is not None:
        text += f" Default: {option.default}."
    return _code(name), text


def metrics() -> str:
    """Render every metric with its labels."""
    rows = [
        (_code(one.name), one.kind, ", ".join(map(_code, one.labels)) or "–", one.help)
        for one in METRICS
    ]
    return table(("metric", "type", "labels", "meaning"), rows)


def label_values() -> str:
    """Render the values that labels can have."""
    families: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for family in METRICS:
        for label, allowed in zip(family.labels, family.values, strict=True):
            families.setdefault((label, tuple(allowed)), []).append(family.name)
    labels = [label for label, _ in families]
    rows = [
        (
            _code(label)
            if labels.count(label) == 1
            else f"{_code(label)} of {', '.join(map(_code, names))}",
            ", ".join(map(_code, allowed)),
        )
        for (label, allowed), names in families.items()
    ]
    return table(("label", "values"), rows)


_FALLBACK_MEANINGS: Final[Mapping[str, str]] = {
    "late": "Compaction took longer than `--deadline`.",
    "failed": "respool had an error of its own.",
    "not-kept": "The store could not keep originals, so no new edit was made.",
    "refused": "The provider refused the projection, so the original was sent.",
    "left-alone": "The provider refused a projection in this conversation earlier.",
    "bypassed": "The client asked for it (`x-respool-bypass`).",
    "signed": "AWS signed the body (SigV4), so it cannot be changed.",
    "paused": "Compaction was paused from the dashboard.",
    "pinned": "The conversation was pinned on the dashboard.",
    "unreadable": "respool cannot read the request.",
    "passed-through": (
        "A format, cloud or history [that respool passes through]"
        "(formats.md#passed-through-unchanged)."
    ),
    "breaker-open": "The circuit breaker is open.",
    "sent-unchanged-before": (
        "This history already went up as it came, and the model binds its reasoning to that."
    ),
}


def fallbacks() -> str:
    """Render the reasons why something else than a projection went up."""
    return table(
        ("reason", "meaning"), [(_code(one), _FALLBACK_MEANINGS[one]) for one in FALLBACK_REASONS]
    )


def framework_snippets() -> str:
    """Render the snippets of all adapters, each under the title that its docstring begins with."""
    return "\n\n".join(sorted(map(_snippet, SNIPPETS.glob("*.py")), key=str.casefold))


def _snippet(path: Path) -> str:
    module = ast.parse(text := path.read_text("utf-8"))
    title, _, notes = (ast.get_docstring(module) or path.stem).partition("\n\n")
    code = "".join(text.splitlines(keepends=True)[module.body[0].end_lineno :]).strip("\n")
    said = f"\n\n{notes}" if notes else ""
    return f"### {title.rstrip('.')}\n\n```python\n{code}\n```{said}"


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "settings": lambda: settings(advanced=False),
    "advanced-settings": lambda: settings(advanced=True),
    "reasons": reasons,
    "anthropic-problems": lambda: problems("anthropic"),
    "openai-chat-problems": lambda: problems("openai_chat"),
    "openai-responses-problems": lambda: problems("openai_responses"),
    "gemini-problems": lambda: problems("gemini"),
    "policy-options": policy_options,
    "common-options": common_options,
    "commands": commands,
    "metrics": metrics,
    "label-values": label_values,
    "fallbacks": fallbacks,
    "framework-snippets": framework_snippets,
}


def generate(text: str) -> str:
    """Fill every generated block of a page."""
    return _BLOCK.sub(_fill, text)


def _fill(found: re.Match[str]) -> str:
    name = found[1]
    return f"<!-- generated: {name} -->\n{BLOCKS[name]()}\n<!-- end -->"


def stale_pages(folder: Path = PAGES) -> dict[Path, str]:
    """Pages whose generated blocks are out of date, with their new text."""
    pages = {path: path.read_text("utf-8") for path in sorted(folder.rglob("*.md"))}
    return {path: new for path, text in pages.items() if (new := generate(text)) != text}


def main(arguments: Sequence[str]) -> Any:
    """Write stale pages; with --check name them and end with status 1."""
    stale = stale_pages()
    if "--check" in arguments:
        names = ", ".join(path.name for path in stale)
        return f"docs: {names} stale: run python -m docs.generate" if stale else 0
    for path, text in stale.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
