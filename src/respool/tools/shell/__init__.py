"""Parser of shell commands, and the effects of known programs."""
