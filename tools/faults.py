"""Put one-line faults into a copy of the library, one at a time, and report which tier of the tests finds each.

    python tools/faults.py                  # 60 faults; about a minute each
    python tools/faults.py --only 7,12      # faults 7 and 12
    python tools/faults.py --tier full      # also run the full tier on faults that the default tier does not find

A fault is found if a test fails. One test is left out: it compares the rules' code with recorded data, and fails for any change.
The tests of the changed package run first, then the whole default tier. The exit code is 1 if the default tier misses more than 6
of the 60 faults, or the full tier misses any.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


#: The test that fails for any changed rule, right or wrong.
TEST_OF_HASHES = "tests/planner/test_rule_calls.py::test_no_rule_has_changed_since_it_was_recorded"


@dataclass(frozen=True)
class Fault:
    """A change of a file in `eagerdecomp/`: `text`, which occurs once, is replaced by `instead`."""

    file: str
    text: str
    instead: str


FAULTS = (
    # wrong operators
    Fault("_torch/ops.py", "return found is not None and tag in found[2]", "return found is not None and tag not in found[2]"),
    Fault("planner/closure.py", "return self._closed.keys() >= ops", "return self._closed.keys() <= ops"),
    Fault("planner/planner.py", "0 <= index < len(self._first)", "0 < index < len(self._first)"),
    Fault("eager/promotion.py", "left.itemsize > right.itemsize", "left.itemsize < right.itemsize"),
    Fault("eager/verdict.py", "if size > _FAR_TOO_MANY:", "if size < _FAR_TOO_MANY:"),
    Fault("eager/crashes.py", "of {size}\" if least < 0 or most >= size", "of {size}\" if least < 0 and most >= size"),
    Fault("rules/writeback.py", "target.dtype and not can_cast(", "target.dtype and can_cast("),
    Fault("eager/scalars.py", "and _LEAST < value < _MOST:", "and not _LEAST < value < _MOST:"),
    Fault("program/constant_hoisting.py", "nbytes() <= _LARGEST", "nbytes() > _LARGEST"),
    Fault("program/key.py", "value.is_conj() or value.is_neg() or", "value.is_neg() or"),
    Fault("decomps/matmul/addmm.py", "if alpha == 0 and _is_unread(", "if alpha != 0 and _is_unread("),
    Fault("decomps/matmul/convolution.py", "if not channels:", "if channels:"),
    Fault("decomps/reduce/reductions.py", "if self.dim() == 0 or not self.dtype", "if self.dim() != 0 or not self.dtype"),
    Fault("decomps/shape/views.py", "self.size(-3) % factor**2:", "self.size(-3) % factor:"),
    Fault("decomps/training/ctc.py", "if not _fits(log_probs, targets,", "if _fits(log_probs, targets,"),
    Fault("decomps/linalg/lu.py", "if unpack_pivots:", "if not unpack_pivots:"),
    Fault("decomps/matmul/blocked_attention.py", "if first > row and so_far", "if first < row and so_far"),
    Fault("decomps/shape/embedding.py", "if grad.dtype not in _FLOATS:", "if grad.dtype in _FLOATS:"),
    Fault("decomps/image/grid_sample.py", "if taps == 1:", "if taps == 2:"),
    Fault("insight/compare_mode.py", "if one.dtype is other.dtype and one.shape ==", "if one.shape =="),
    # removed checks
    Fault("runtime/record_call.py", "if isinstance(error, Declined):", "if False:"),
    Fault("rules/writeback.py", "if result.device != target.device:", "if False:"),
    Fault("rules/failed_routes.py", "if is_too_large(op, args, kwargs):", "if False:"),
    Fault("decomps/derived/foreach.py", "if other.dim():", "if False:"),
    Fault("rules/user_rules.py", "if not callable(fn):", "if False:"),
    Fault("ops/backend.py", "if any(op not in supported.ops for op in added):", "if False:"),
    Fault("ops/opset.py", "if not isinstance(label, str):", "if False:"),
    Fault("verify/policy.py", "not 1.0 <= self.tolerance < float(\"inf\")", "False"),
    Fault("decomps/shape/ranges.py", "if layout not in (None, torch.strided):", "if False:"),
    Fault("decomps/last_resort/prims_random.py", "* last_dim_size", "* 1"),
    Fault("rules/failed_routes.py", "if needs_data(error):", "if False:"),
    Fault("rules/writeback.py", "if above and not torch.is_inference_mode_enabled():", "if False:"),
    Fault("decomps/shape/padded_batches.py", "(mask_check and not _is_left_aligned(t, mask))", "False"),
    Fault("cli/new_backend.py", "if folder.exists() and (", "if False and ("),
    Fault("frontends/fx/capture.py", 'and "data-dependent" in said:', 'and "other" in said:'),
    Fault("decomps/derived/inplace_and_out.py", "if quirks.no_overlap:", "if False:"),
    # guards and conditions
    Fault("tracing/guards.py", 'if fact == "length":', 'if fact == "lengths":'),
    Fault("tracing/guards.py", 'if fact == "dtype":', 'if fact == "dtypes":'),
    Fault("tracing/recorder.py", "if reads_data(op, args):", "if False:"),
    Fault("tracing/recorder.py", "if type(value) is TrackedInt or type(value) in (int, float):", "if type(value) in (int, float):"),
    Fault("program/key.py", "if not argument.holds_tensors:", "if argument.holds_tensors:"),
    Fault("program/passes/common_subexpressions.py", " or any(slot in escaping for slot in call.results):", ":"),
    Fault("program/passes/buffer_reuse.py", "and last[s] == index and s not in kept}", "and last[s] == index}"),
    Fault("runtime/runtime.py", "if op in self._linking.ops:", "if False:"),
    Fault("runtime/runtime.py", "if not meet(written, read):", "if True:"),
    Fault("runtime/record_call.py", "if types and desugars_first(types):", "if types:"),
    Fault("rules/compute.py", "if promotes or wide is not dtype:", "if promotes:"),
    Fault("rules/link.py", "if tree and isinstance(value, OpOverload):", "if False:"),
    Fault("rules/writeback.py", "if target.numel():", "if True:"),
    Fault("dispatcher/composites.py", "or is_transforming() or autocast_is_on():", "or is_transforming():"),
    Fault("eager/scalar_tensors.py", "if dtype in _BITS and isinstance(value, int):", "if False:"),
    Fault("planner/planner.py", "if supported and when is None:", "if supported:"),
    Fault("eager/random_numbers.py", "if facts.is_out:", "if not facts.is_out:"),
    Fault("coverage/routes.py", "if reached.issuperset(way.calls):", "if True:"),
    Fault("coverage/analysis.py", "\"closed\" if all(closing)", "\"closed\" if any(closing)"),
    Fault("frontends/preflight.py", "return tensor.clone() if tensor.requires_grad else tensor", "return tensor"),
    Fault("conformance/spec_arguments.py", "if other in HALVES and dtype not in HALVES:", "if other in HALVES:"),
    Fault("conformance/specs/products.py", 'if factors["beta"] == 0:', 'if factors["beta"] != 0:'),
    Fault("verify/replay.py", "if why_not_compared(self._planner, op, args, kwargs):", "if False:"),
    Fault("ops/call_text.py", "if isinstance(node.op, ast.USub) and", "if isinstance(node.op, ast.UAdd) and"),
)  # fmt: skip


def copy_of_library(folder: Path) -> Path:
    """Return the root of a copy: a git worktree of HEAD, without uncommitted changes."""
    copy = folder / "copy"
    subprocess.run(["git", "worktree", "add", "-q", "--detach", str(copy)], cwd=ROOT, check=True)
    return copy


def failing_test(copy: Path, tests: str, tier: str) -> str | None:
    """Run tests and return the first that fails, or None. A slow test fails only if all tests run."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "-x", "-p", "no:cacheprovider", "--deselect", TEST_OF_HASHES, tests]
    command += ["-m", "full"] if tier == "full" else []
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if run.returncode in (0, 5):  # 5: the folder has no test of this tier
        return None
    lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0].removeprefix("FAILED ").partition(" - ")[0] if lines else (run.stdout + run.stderr).strip().splitlines()[-1]


def folder_of_tests(copy: Path, file: str) -> str:
    """Return the folder with the tests of a file."""
    folder = Path(file).parent
    while not (copy / "tests" / folder).is_dir():
        folder = folder.parent
    return f"tests/{folder}".replace("tests/conformance", "tests/conformance_suite")


def find(copy: Path, fault: Fault, tiers: Sequence[str]) -> tuple[str, str] | None:
    """Return the tier that finds a fault, and the test that fails; None if no test fails."""
    file = copy / "eagerdecomp" / fault.file
    source = file.read_text(encoding="utf-8")
    if source.count(fault.text) != 1:
        raise SystemExit(f"eagerdecomp/{fault.file} must contain {fault.text!r} exactly once. Edit FAULTS in tools/faults.py")
    file.write_text(source.replace(fault.text, fault.instead), encoding="utf-8")
    try:
        near = folder_of_tests(copy, fault.file)
        for tier in tiers:
            for tests in (near, "tests"):
                if (test := failing_test(copy, tests, tier)) is not None:
                    return tier, test
        return None
    finally:
        file.write_text(source, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NUMBERS", help="only these faults, separated by commas")
    parser.add_argument(
        "--tier", choices=("default", "full"), default="default", help="the last tier to run (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    numbers = [int(one) for one in options.only.split(",")] if options.only else range(1, len(FAULTS) + 1)
    tiers = ("default", "full")[: 2 if options.tier == "full" else 1]
    counts = {"default": 0, "full": 0}
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copy = copy_of_library(Path(folder))
        try:
            if (test := failing_test(copy, "tests", "default")) is not None and not options.only:
                raise SystemExit(f"{test} fails without any fault")
            for number in numbers:
                fault, start = FAULTS[number - 1], time.monotonic()
                found = find(copy, fault, tiers)
                if found is not None:
                    counts[found[0]] += 1
                tier, test = found or ("missed", "")
                took = f"{time.monotonic() - start:.0f} s"
                print(f"{number:2} {tier:8} {fault.file}: {fault.text} -> {fault.instead}  {test}  [{took}]", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(copy)], cwd=ROOT, check=True)
    missed = len(numbers) - sum(counts.values())
    print(
        f"of {len(numbers)} faults the default tier finds {counts['default']}, the full tier {counts['full']} more; {missed} missed"
    )
    return int(len(numbers) - counts["default"] > 6 or (options.tier == "full" and missed > 0))


if __name__ == "__main__":
    raise SystemExit(main())
