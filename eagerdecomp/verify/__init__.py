"""A call made again against eager.

`wrappers` stand around handlers, `policy` is what the user asks for, `replay` makes the call, `findings` and `reproducer` say
what differs, in words and as a script.
"""
