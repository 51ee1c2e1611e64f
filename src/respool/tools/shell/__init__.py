"""Shell commands: parsed, and their effects by program."""
