"""Parts that know nothing of ops: fork-safe locks, progress, HTML pages, running a script, source lines, atomic files.

Nothing here imports `ops`.
"""
