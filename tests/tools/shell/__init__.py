"""Tests of shell commands."""
