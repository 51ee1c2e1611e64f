"""The known coding agents: how each is pointed at the proxy."""
