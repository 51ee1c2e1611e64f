"""Shell completion: scripts that their shells read, and words that fit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from respool.cli import main
from respool.cli.completion import SHELLS


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_valid_in_its_shell(shell: str):
    made = CliRunner().invoke(main, ["completion", shell])
    assert made.exit_code == 0
    assert "_RESPOOL_COMPLETE" in made.stdout
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    subprocess.run([program, "-n"], input=made.stdout, text=True, check=True)


@pytest.mark.parametrize(
    ("typed", "word"), [("respool ins", "install"), ("respool serve --fail", "--fail-open")]
)
def test_a_word_is_completed(typed: str, word: str):
    count = len(typed.split()) - 1
    environ = {"_RESPOOL_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(count)}
    done = subprocess.run(
        [sys.executable, "-c", "from respool.cli import main; main(prog_name='respool')"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"plain,{word}" in done.stdout.splitlines()
