"""Tests of respool.wire."""
