"""The fold over a conversation's requests, and the planner of its edits."""
