"""Entry point of `python -m respool`."""

from .cli import drop_working_directory, main

drop_working_directory()
main(prog_name="respool")
