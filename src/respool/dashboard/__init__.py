"""The dashboard: what the proxy did, for the person whose machine it runs on."""
