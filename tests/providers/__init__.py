"""Tests of respool.providers."""
