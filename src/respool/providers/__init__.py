"""Provider knowledge: one folder per provider, and what they share."""
