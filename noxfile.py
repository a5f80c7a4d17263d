"""Environments with each torch and Python that the library is for: ``pip install nox && nox -s "versions-3.12(torch='2.14')"``.

All but the tested release on Python 3.11 come from the package index as CUDA builds of several GB, so make them one by one.
"""

import nox

TORCH = ("2.11", "2.12", "2.13", "2.14", "2.15")
PYTHON = ("3.10", "3.11", "3.12", "3.13", "3.14")


@nox.session(python=PYTHON, reuse_venv=True)
@nox.parametrize("torch", TORCH)
def versions(session: nox.Session, torch: str) -> None:
    """Run the demo, the default tier and the scoreboard with a torch, and write their results into docs/numbers/versions.md."""
    session.install(f"torch=={torch}.*", "-e", ".[test]")
    session.run("python", "tools/port.py", success_codes=[0, 1])
    session.run("python", "tools/versions.py", "--record", *session.posargs)
