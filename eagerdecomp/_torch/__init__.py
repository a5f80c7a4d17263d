"""All uses of torch's private API.

Each name has a test in ``tests/_torch``; run that folder to check a new torch version.
"""
