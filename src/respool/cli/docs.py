"""`respool docs`: show a page of the documentation, which is part of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from .console import CommandError, Table, is_terminal, show

# The page that explains each command; a command without an entry stands in the reference.
COMMAND_PAGES: Final = {
    "brief": "start/replay",
    "check": "reference/problems",
    "compact": "how/projection",
    "completion": "start/install",
    "demo": "index",
    "docs": "index",
    "doctor": "operate/troubleshooting",
    "expand": "how/markers",
    "explain": "how/projection",
    "forget": "operate/store",
    "hook": "operate/hook",
    "install": "start/install",
    "loops": "how/loops",
    "mcp": "operate/mcp",
    "replay": "start/replay",
    "run": "start/run",
    "search": "operate/store",
    "serve": "operate/proxy",
    "settings": "reference/settings",
    "stats": "operate/dashboard",
    "status": "operate/dashboard",
    "statusline": "operate/dashboard",
    "team": "operate/teams",
    "uninstall": "start/install",
}
_REFERENCE: Final = "reference/commands"
_SUFFIX: Final = ".md"
_MAX_WIDTH: Final = 100  # characters of a line: longer ones are hard to read


def page_of_command(name: str) -> str:
    """The page that explains a command."""
    return COMMAND_PAGES.get(name, _REFERENCE)


def docs_folder() -> Path:
    """The folder of the documentation: in the package, or in a clone of the repository."""
    package = Path(__file__).parents[1]
    for folder in (package / "docs", package.parents[1] / "docs"):
        if (folder / "index.md").is_file():
            return folder
    raise CommandError("The documentation is not part of this installation of respool.")


def list_pages() -> list[str]:
    """The names of all pages, such as `start/run`."""
    folder = docs_folder()
    found = (path.relative_to(folder) for path in folder.rglob(f"*{_SUFFIX}"))
    return sorted(path.as_posix().removesuffix(_SUFFIX) for path in found)


def find_page(topic: str, pages: list[str]) -> str:
    """The page that a topic means: its name, the end or a unique beginning of it, or a command."""
    topic = topic.strip().removeprefix("docs/").removesuffix(_SUFFIX).lower()
    if topic in pages:
        return topic
    for fitting in (
        [page for page in pages if page.endswith(f"/{topic}")],
        [COMMAND_PAGES[topic]] if topic in COMMAND_PAGES else [],
        [page for page in pages if topic and page.rpartition("/")[2].startswith(topic)],
    ):
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise CommandError(f"{topic!r} is the name of several pages: {', '.join(fitting)}.")
    raise CommandError(f"There is no page {topic!r}; respool docs lists them all.")


@click.command()
@click.argument("topic", metavar="[TOPIC]", required=False)
def docs(topic: str | None) -> None:
    """Show a page of the documentation; without TOPIC, list all pages.

    TOPIC is the name of a page, such as run or how/markers, or of a command.
    """
    pages, folder = list_pages(), docs_folder()
    if topic is None:
        rows = [(page, _title(folder, page)) for page in pages]
        show(
            Table("Pages", ("topic", "title"), rows),
            f"respool docs TOPIC shows one. The files are in {folder}.",
        )
        return
    _show_page((folder / f"{find_page(topic, pages)}{_SUFFIX}").read_text("utf-8"))


def _title(folder: Path, page: str) -> str:
    with (folder / f"{page}{_SUFFIX}").open(encoding="utf-8") as lines:
        return next(lines, "").removeprefix("#").strip()


def _show_page(text: str) -> None:
    """Write a page: formatted and in a pager on a terminal, else as it is."""
    if not is_terminal():
        click.echo(text, nl=False)
        return
    from rich.console import Console  # lazily: it takes longer to load than most commands to run
    from rich.markdown import Markdown

    console = Console(highlight=False)
    console.width = min(console.width, _MAX_WIDTH)
    with console.capture() as written:
        console.print(Markdown(text, hyperlinks=False))
    click.echo_via_pager(written.get(), color=None)
