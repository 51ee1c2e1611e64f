"""Tests of respool.providers.openai_responses."""
