"""Rules for ops of libraries beside torch, a folder per library, by the namespace of its ops.

A folder is imported when an op of its namespace is first seen, so a program without the library never loads it. The library
registers its ops when it is imported, which may be later than this package: rules are found by the op's name (`library_rule`).
"""
