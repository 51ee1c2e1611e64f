"""Agents' own transcripts, read from disk into the requests that were really sent."""
