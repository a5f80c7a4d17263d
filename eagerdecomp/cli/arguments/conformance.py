"""The arguments of ``eagerdecomp conformance``."""

from __future__ import annotations

import argparse

from .shared import FAILED, INTERRUPTED, NOTHING_EXERCISED, USAGE_ERROR, add_device, add_json, positive

__all__ = ["EPILOG", "configure"]

_PROFILES = ("quick", "standard", "thorough")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backend", nargs="?", metavar="MODULE:BACKEND", help="a Backend or OpSet, or a function that returns one")
    add_device(parser, "MODULE:BACKEND")
    parser.add_argument(
        "--kernels",
        metavar="FOLDER",
        help="instead of MODULE:BACKEND: judge the kernels in the files of FOLDER, each in a process of its own (see below)",
    )
    parser.add_argument(
        "--time-limit", type=positive, default=300, metavar="S", help="of --kernels, for each (default %(default)s)"
    )
    parser.add_argument(
        "--memory-limit", type=positive, default=4096, metavar="MIB", help="of --kernels, for each (default %(default)s)"
    )
    parser.add_argument(
        "--passed", metavar="FILE", help="of --kernels: write the ops whose newest kernel passed to FILE, for plan --ops FILE"
    )
    parser.add_argument(
        "--strict", action="store_true", help="fail also for kernels that accept wrong arguments, which eager refuses"
    )
    parser.add_argument(
        "--profile",
        choices=_PROFILES,
        default="standard",
        help="how many inputs: quick takes seconds, standard minutes, thorough an hour (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random inputs (default %(default)s)")
    parser.add_argument("--ops", metavar="OPS", help="test only these ops, separated by commas: aten.add.Tensor,aten.sum")
    parser.add_argument("--processes", type=positive, metavar="N", help="number of worker processes (default: one per core)")
    parser.add_argument("--in-process", action="store_true", help="start no worker processes: a kernel that crashes ends the run")
    parser.add_argument("--scripts", metavar="FOLDER", help="write a script to FOLDER for each fault, which reproduces it")
    parser.add_argument("--markdown", metavar="FILE", help="write the report to FILE as Markdown, for a pull request")
    parser.add_argument("--junit", metavar="FILE", help="write the report to FILE as JUnit XML")
    parser.add_argument("--html", metavar="FILE", help="write the report to FILE as an HTML page")
    parser.add_argument(
        "--compare", metavar="OLD.json", help="print which kernels got better or worse since an older report, which --json wrote"
    )
    parser.add_argument(
        "--absences",
        metavar="FILE",
        help="a list of the kernels that are left out on purpose; fail if it does not match the backend",
    )
    parser.add_argument(
        "--write-absences",
        metavar="FILE",
        help="write the list for --absences, with the reasons of the --absences file that you pass",
    )
    parser.add_argument("--absent", action="store_true", help="print the names of absent kernels, not only their number")
    add_json(parser, "the report")


EPILOG = f"""examples:
  eagerdecomp conformance my_backend:backend                                   test all kernels, in minutes
  eagerdecomp conformance my_backend:backend --profile quick --ops aten.add    test one kernel, in a second
  eagerdecomp conformance --device mydev --import my_package                   test the kernels of a device
  eagerdecomp conformance my_backend:backend --scripts wrong/                  a script for each fault
  eagerdecomp conformance my_backend:backend --json new.json --compare main.json --markdown comment.md
  eagerdecomp conformance my_backend:backend --html report.html --junit report.xml --absences absent.txt
  eagerdecomp conformance --kernels generated/ --profile quick             a verdict beside each file of generated/

Each kernel is called with difficult values, dtypes, shapes and strides. Its results are compared with eager on the CPU,
and values with the op computed in float64. Without --ops, the ops that the set decomposes are tested too, and their
faults are listed under the kernel that causes them. Each kernel is right, wrong, absent (the backend has none) or not
exercised (the suite has no call for it).

--kernels takes files such as generated/add__Tensor/add__Tensor_implementation_v1.py with a function
add__Tensor_kernel_impl, and writes add__Tensor_implementation_v1.verdict.json beside each: passed, wrong, crashed,
timed out or not exercised, and why. A file that has a verdict and did not change is not judged again with
the same options and limits. The newest version of each op decides the exit code. With --json FILE all verdicts are in FILE too,
and --passed FILE lists the ops that passed, for eagerdecomp plan --ops FILE.

exit codes: 0 no kernel is wrong; {FAILED} a kernel is wrong, --absences does not match, or a kernel is worse than in --compare;
{USAGE_ERROR} wrong command line, backend or file; {NOTHING_EXERCISED} no kernel was exercised;
{INTERRUPTED} interrupted (Ctrl-C), after a report of the kernels tested until then"""
