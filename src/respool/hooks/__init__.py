"""Hooks inside agents: results shaped as they arrive, and briefs around compactions."""
