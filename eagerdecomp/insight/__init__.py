"""Reports on what a program did.

`blame_mode` finds the call that went wrong, `compare_mode` runs two backends side by side, `profile` counts.
"""
