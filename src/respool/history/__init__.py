"""History of a conversation: what its calls did, and where its lines stand."""
