"""Tests of the known coding agents."""
