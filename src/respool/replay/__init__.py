"""Recorded sessions billed again, request by request, under a policy."""
