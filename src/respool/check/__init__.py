"""What a provider would reject in a request."""
