"""Model Context Protocol server: an agent's read access to the store."""
