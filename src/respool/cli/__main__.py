"""Entry point of `python -m respool.cli`."""

from . import main

main(prog_name="respool")
