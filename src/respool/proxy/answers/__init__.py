"""What answers tell as they pass: usage, model, what it cost."""
