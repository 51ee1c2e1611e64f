"""Forecast of what a later turn will need, by result and by line."""
