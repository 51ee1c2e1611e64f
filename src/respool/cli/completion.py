"""`respool completion`: the script by which a shell completes respool's commands."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_RESPOOL_COMPLETE"  # by which click is asked for words


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    For bash: eval "$(respool completion bash)" in ~/.bashrc; zsh likewise in ~/.zshrc. For fish:
    respool completion fish > ~/.config/fish/completions/respool.fish.
    """
    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    root = ctx.find_root()
    click.echo(made(root.command, {}, "respool", _VARIABLE).source())
