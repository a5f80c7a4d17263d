"""Counts and explanations of the calls that a mode or an installation decomposed."""

from __future__ import annotations

from typing import Any

from eagerdecomp.diagnosis.explanation import Explanation
from eagerdecomp.ops.opset import OpLike
from eagerdecomp.runtime.engine import Engine
from eagerdecomp.runtime.stats import Stats
from eagerdecomp.verify.policy import Verified
from eagerdecomp.verify.wrappers import Verifying

__all__ = ["Inspected"]


class Inspected:
    """The base of the mode and of installations: counts, results of `verify`, and explanations of calls."""

    _engine: Engine
    _verifying: Verifying | None

    def stats(self) -> Stats:
        """Return counts per op since the mode or the installation was made; they print as a table."""
        return self._engine.stats()

    @property
    def verified(self) -> Verified:
        """The results of `verify` so far, with the differences found. It prints as text."""
        return self._verifying.found() if self._verifying is not None else Verified()

    def why_missed(self, op: OpLike) -> str:
        """Return why an op's last recorded call was a cache miss.

        Args:
            op: an overload, a packet or a name.

        Returns:
            The guards of that call that no cached call shared, or why none of the op's calls was recorded.

        Raises:
            OpSetError: for an unknown op name.
        """
        return self._engine.why_missed(op)

    def explain(self, op: OpLike, *args: Any, **kwargs: Any) -> Explanation:
        """Return what happens to a call of an op, the counts so far, and why the last call was a cache miss.

        Args:
            op: an overload, a packet or a name.
            *args: the op's positional arguments. Without arguments, the explanation lists the op's rules and the program of its
                last recorded call.
            **kwargs: the op's keyword arguments.

        Returns:
            The explanation, as by `eagerdecomp.explain`; it prints as text.

        Raises:
            OpSetError: for an unknown op name, or a packet whose overload neither the arguments nor the calls so far determine.
        """
        return self._engine.explain(op, args, kwargs)
