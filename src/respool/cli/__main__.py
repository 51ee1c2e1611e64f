"""Entry point of `python -m respool.cli`."""

from . import drop_working_directory, main

drop_working_directory()
main(prog_name="respool")
