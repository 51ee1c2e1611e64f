"""Tests of the fold and the planner."""
