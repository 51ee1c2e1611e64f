"""The proxy: requests to providers, compacted on their way upstream."""
