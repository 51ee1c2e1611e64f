"""Recorded sessions replayed request by request: what they cost, and what a policy would do."""
