"""Entry point of `python -m respool`."""

from .cli import main

main(prog_name="respool")
