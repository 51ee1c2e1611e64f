"""Whole corpora: files on disk or in object storage, worked on by processes or by Ray."""
