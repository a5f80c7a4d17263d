"""The uses of torch's private API, and nothing else.

Each name has a test in ``tests/_torch``: a new torch version is checked by running that folder.
"""
