"""Make a saved call, and compare its results with the saved ones."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_named
from eagerdecomp._torch.tensors import has_values
from eagerdecomp.eager.compare import difference
from eagerdecomp.eager.observe import copied, leaves_of, mapped_call, nesting_of, observed
from eagerdecomp.errors import FileError
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.host.import_path import module_of, object_of
from eagerdecomp.ops.call_text import describe_call, tensor_text, value_text
from eagerdecomp.ops.opset_file import op_set_from
from eagerdecomp.ops.schema import facts_of, tensors_in
from eagerdecomp.recording.differences import difference_of_calls
from eagerdecomp.recording.digest import digest_of, flat_values
from eagerdecomp.recording.places import FORWARD
from eagerdecomp.recording.run_folder import RecordedCall, Value
from eagerdecomp.recording.text import off_text

__all__ = ["main"]


def main(path: Path, words: Sequence[str] | None = None) -> int:
    """Make the call of a file that a `ValueRecorder` saved, print how it differs, and return the exit code."""
    parser = argparse.ArgumentParser(description="make a saved call, and compare its results with the saved ones")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--backend",
        metavar="SET",
        help="make the call in eagerdecomp's mode: the name or file of an op set, or MODULE:NAME of a Backend or OpSet",
    )
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE")
    options = parser.parse_args(words)
    for module in options.imports:
        module_of("--import", module)
    try:
        saved = _loaded(path)
    except FileError as error:
        parser.error(str(error))
    op = op_named(saved["op"])
    if op is None:
        parser.error(f"{path}: this torch has no op {saved['op']}")
    device = torch.device(options.device)

    def restored(value: Any) -> Any:
        text = isinstance(value, str) and value.startswith("torch.")
        return getattr(torch, value.removeprefix("torch.")) if text else value  # a memory format

    def moved(value: Any) -> Any:
        return value.to(device) if isinstance(value, Tensor) else device if isinstance(value, torch.device) else value

    def home(value: Any) -> Any:
        return value.cpu() if isinstance(value, Tensor) else value

    given, named = mapped_call(restored, saved["args"], saved["kwargs"])
    args, kwargs = mapped_call(moved, *copied(op, given, named))
    mode: Any = nullcontext()
    if options.backend:
        found = object_of("--backend", options.backend) if ":" in options.backend else op_set_from(options.backend)
        mode = EagerDecompMode(found)
    with torch.no_grad(), mode:
        result = list(leaves_of(op(*args, **kwargs)))
    names = [argument.name for argument in facts_of(op).arguments]
    after = {**dict(zip(names, args, strict=False)), **kwargs}
    # Arguments that the op does not write are not compared: they stand on both sides.
    have, want = (
        replace(observed(results, (), {}), inputs=[one.contiguous() for one in tensors_in([*values.values()])])
        for results, values in (
            ([home(one) for one in result], mapped_call(home, (), after)[1]),
            (saved["results"], {**mapped_call(home, (), after)[1], **saved["written"]}),
        )
    )
    values = not facts_of(op).is_random
    # The comparer asks this machine's kernel in float64 how exact a result can be. Where that is wrong too, digests show it.
    calls = [_as_recorded(op, given, [*one.leaves, *one.inputs]) for one in (want, have)]
    allowed = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    tf32 = allowed and options.device.startswith("cuda")
    further = difference_of_calls(*calls, tf32=tf32) if values else None
    print(describe_call(op, given, named))
    facts = ("dtype", "layout")
    differs = difference(op, given, named, want, have, op, values=values, strides="any", facts=facts)
    if nesting_of(have.leaves) == nesting_of(want.leaves) and differs is None and further is None:
        print("the results agree with the saved ones" + ("" if values else "; random numbers are not compared"))
        return 0
    if differs is not None or further is None:
        print(differs)
    else:
        print(f"{further.output} differs: {off_text(further.relative)} of its norm, {off_text(further.allowed)} allowed")
    return 1


def _as_recorded(op: OpOverload, args: Sequence[Any], results: Sequence[Any]) -> RecordedCall:
    """Return a call with digests, as a run has it, without keyword arguments and lists of tensors."""

    def value(name: str, one: Any, defined: bool = True) -> Value:
        if not isinstance(one, Tensor):
            return Value(name, value_text(one), constant=one if isinstance(one, (bool, int, float, str)) else None)
        digest = digest_of(flat_values([one.detach()])) if defined and has_values(one) else None
        return Value(name, tensor_text(one), (), digest, True, defined)

    names = [argument.name for argument in facts_of(op).arguments]
    outputs = [value(f"result {place}", one, place not in facts_of(op).opaque_results) for place, one in enumerate(results)]
    return RecordedCall(0, str(op), "", FORWARD, "", tuple(map(value, names, args)), tuple(outputs))


def _loaded(path: Path) -> dict[str, Any]:
    try:
        saved = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise FileError(f"{path}: cannot read the saved call: {error}") from None
    if not isinstance(saved, dict) or not {"op", "args", "kwargs", "results", "written"} <= saved.keys():
        raise FileError(f"{path}: this is no saved call. Save one with: eagerdecomp record --save-call N")
    return saved
