"""What points each known agent at a proxy."""
