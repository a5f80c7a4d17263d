"""From an op to its handler: the hot path, the cache of programs, statistics.

- `handlers`: makes the handlers.
- `record_call`: records a call on a cache miss.
- `cache`: stores programs.
- `compiler`: compiles programs and stores them in the cache.
- `engine`: joins these parts for the frontends.
- `stats`: counts.
"""
