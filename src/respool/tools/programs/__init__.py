"""What each program does, by its words."""
