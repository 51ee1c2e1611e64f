"""Tests of shapes of texts."""
