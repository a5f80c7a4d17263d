"""The arguments of ``eagerdecomp new-backend``."""

from __future__ import annotations

import argparse

from .shared import add_json

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of the backend and of its package: letters, digits and _")
    parser.add_argument("--device", metavar="DEVICE", help="also create a torch device with this name: small letters and _")
    parser.add_argument("--dir", metavar="DIR", help="the project folder, new or empty (default: ./NAME)")
    add_json(parser, "the list of files")


EPILOG = """examples:
  eagerdecomp new-backend mine                  a project in ./mine
  eagerdecomp new-backend mine --dir ~/src/mine
  eagerdecomp new-backend mine --device toy     with a device "toy": tensor.to("toy")
  eagerdecomp new-backend mine --json -         print the list of files as JSON

The project has a package with three kernels (add, mul, mm), tests, a GitHub workflow, and a README with the next steps.
The tests compare each kernel with eager and train a model on the set. They pass at once. Without --device, tensors are
on the CPU, and the set is these three kernels. With --device, tensors are on a new device, written in Python on torch's
PrivateUse1. It has kernels for all of Core ATen: yours for the three ops, the CPU's for the others.

exit codes: 0 success; 2 the name cannot be a package or a device, or the project folder is not empty;
130 interrupted (Ctrl-C)"""
