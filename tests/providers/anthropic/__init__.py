"""Tests of respool.providers.anthropic."""
