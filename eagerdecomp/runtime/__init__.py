"""From an op to the handler that runs its calls, and what handlers need: the cache of programs, statistics.

- `engine`: the handlers of one backend, as the frontends use them.
- `runtime`: makes an op's handler at its first call.
- `handlers`: the kinds of handlers.
- `sparse_calls`, `zero_tangents`: handlers of ops that take sparse tensors, or zero tangents.
- `record_call`: records a call on a cache miss.
- `cache`: stores programs.
- `compiler`: compiles programs.
- `entry`, `stats`: an op's handler with its counts, and the table of counts.
- `collectives`: callbacks of process groups.
"""
