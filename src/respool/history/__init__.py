"""History of a conversation: the effects of its calls, and its lines."""
