"""What of a history will be needed again: how often, by result and by line."""
