"""Run functions on threads that start together."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE = 120.0


def together(*work: Callable[[], None]) -> None:
    """Run functions on threads that start together; raise if one raises or does not end."""
    ready, raised = threading.Barrier(len(work)), []

    def run(one: Callable[[], None]) -> None:
        try:
            ready.wait(PATIENCE)
            one()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    if raised:
        raise raised[0]
