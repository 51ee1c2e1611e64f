"""Anthropic Messages: codec, rules, repairs and rendering."""
