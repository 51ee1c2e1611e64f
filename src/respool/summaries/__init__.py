"""What old calls did, in a reader's words: a line for one result, a few lines for a batch."""
