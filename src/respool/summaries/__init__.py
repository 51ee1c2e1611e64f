"""Summaries of old calls: one line for a result, a few for a batch."""
