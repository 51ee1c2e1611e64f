"""Tests of respool.providers.gemini."""
