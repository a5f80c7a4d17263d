"""From an op to its handler: the hot path, the cache of programs, statistics.

`handlers` makes a handler of each kind and records on a miss, `cache` keeps programs, `compiler` installs them, `engine` joins
the parts for the frontends, `stats` counts.
"""
