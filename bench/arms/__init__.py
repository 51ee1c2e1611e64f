"""Benchmark tasks run by an agent through respool, once for each arm."""
