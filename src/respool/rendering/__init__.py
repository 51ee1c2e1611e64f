"""Tool history as plain messages, for gateways and models that refuse structured calls."""
