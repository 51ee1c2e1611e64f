"""Tests against a real model server, real agents and a real browser.

`server.py` starts and stops it, `serve.py` is the process it runs in, `strict.jinja` the template,
`fitting.py` brings conversations into what such a small server takes, `cases.py` has histories that
it must refuse until they are repaired.
"""
