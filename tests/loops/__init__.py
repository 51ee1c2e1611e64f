"""Tests of loop detection."""
