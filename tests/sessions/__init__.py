"""Tests of the transcript readers."""
