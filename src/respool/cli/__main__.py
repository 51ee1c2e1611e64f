"""`python -m respool.cli` is `respool`."""

from . import main

main(prog_name="respool")
