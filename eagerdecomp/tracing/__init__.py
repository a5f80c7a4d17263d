"""A call recorded as it runs.

`recorder` notes kernel calls, `guards` the facts that a rule reads, `recursion` the rules under way.
"""
