"""The proxy: requests on their way up, responses on their way down."""
