"""Environments with each torch that the library is for: ``pip install nox && nox -s versions``, by hand, one at a time.

All but the tested release come from the package index as CUDA builds of several GB. ``nox -s "versions(torch='2.14')"`` makes one.
"""

import nox

TORCH = ("2.11", "2.12", "2.13", "2.14", "2.15")


@nox.session(reuse_venv=True)
@nox.parametrize("torch", TORCH)
def versions(session: nox.Session, torch: str) -> None:
    """Run the default tier and the scoreboard with a torch, and write their results into docs/numbers/versions.md."""
    session.install(f"torch=={torch}.*", "-e", ".[test]")
    session.run("python", "tools/port.py", success_codes=[0, 1])
    session.run("python", "tools/versions.py", "--record", *session.posargs)
