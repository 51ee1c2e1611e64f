"""Tests of the history of calls."""
