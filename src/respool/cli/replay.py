"""`respool replay`: price past sessions and what a policy would have saved and lost."""

from __future__ import annotations

from typing import Any

import click

from .options import engine_option, json_option


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--since",
    metavar="WHEN",
    help="Only sessions that ended later: a date (2026-11-01), or how long ago (7d, 2w, 3m).",
)
@click.option(
    "--agent",
    "agents",
    metavar="NAME",
    multiple=True,
    help="Only sessions of this agent, such as claude-code or codex. May be repeated.",
)
@click.option(
    "--policy",
    "policies",
    metavar="NAME",
    multiple=True,
    help="Policy to compare: a preset, a TOML file of settings, mask-10, clear-100k, cold, oracle, "
    "floor. May be repeated.",
)
@click.option(
    "--window",
    type=click.IntRange(1),
    metavar="N",
    help="Context window in tokens, in place of the model's listed one.",
)
@click.option(
    "--detail",
    is_flag=True,
    help="Show all columns of the policies, what was read again, and the reported charges.",
)
@click.option("--plain", is_flag=True, help="Count characters / 4, as published figures do.")
@json_option
@click.option("--html", metavar="FILE", help="Write a page with charts, for a browser.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Number of processes; by default one per core.",
)
@engine_option
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Folder for the outcomes of finished files, which the next run takes from there.",
)
@click.option("--quiet", is_flag=True, help="Show no progress, and no list of what was skipped.")
def replay(**given: Any) -> None:
    """Show what past sessions cost, and what a policy would have saved and lost.

    PATH is an agent's transcript, a folder of transcripts, or an address such as s3://bucket/logs;
    the default is every transcript that known agents keep on this machine. Nothing is changed, and
    nothing leaves the machine.
    """
    from .replay_job import (  # lazily: no other command needs it
        ReplayArguments,
        run_replay,
    )

    run_replay(ReplayArguments(**given))
