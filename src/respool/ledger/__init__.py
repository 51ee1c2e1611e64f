"""What the calls of a conversation did, and where its lines stand."""
