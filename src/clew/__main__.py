"""`python -m clew` is `clew`."""

from .cli import main

main(prog_name="clew")
