"""The history folded over its requests: what is in force, and what is remembered of it."""
