"""`python -m clew.cli` is `clew`."""

from . import main

main(prog_name="clew")
