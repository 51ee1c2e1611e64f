"""`python -m respool` is `respool`."""

from .cli import main

main(prog_name="respool")
