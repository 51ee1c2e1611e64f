"""Tests of summaries of calls."""
