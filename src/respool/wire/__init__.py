"""Requests as bytes or objects: taken apart and put together again."""
