"""Tests of respool.providers.openai_chat."""
