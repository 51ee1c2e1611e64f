"""Agents' transcripts on disk, read as the requests that were really sent."""
