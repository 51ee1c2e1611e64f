"""What goes up in place of a request, and what is written down of it."""
