"""From an op to its handler: the hot path, the cache of programs, statistics."""
