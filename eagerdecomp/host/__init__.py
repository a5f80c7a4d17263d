"""The process and its outputs, no op known: locks that a forked process finds free, progress, HTML, running a script, source
lines.

Nothing here imports `ops` or knows what an operator is.
"""
