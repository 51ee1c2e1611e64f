"""The dashboard: a read-only view of the proxy's records, for the owner of the machine."""
