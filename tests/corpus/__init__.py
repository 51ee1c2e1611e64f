"""Recorded sessions of nine agents, read into the requests that they sent.

`sessions.py` finds the files and builds the requests; the other modules read a format each. They
are plain on purpose: a record that is no part of the chat is counted by its kind, and what is
broken in a recording stays broken.
"""
