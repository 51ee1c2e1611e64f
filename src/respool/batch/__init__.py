"""Batch jobs over whole corpora, on disk or in object storage, by processes or Ray."""
