"""Requests on their way up and responses on their way down, byte for byte."""
