"""Run as a script: loads files of programs that differ from a real one in one place each, and makes the calls that they are for.

``python tests/support/mutated.py FOLDER COUNT SEED`` prints what came of it, as JSON. What it tried last stands in FOLDER, for
the case
that the process does not live to say it. A test runs it in a process of its own: what a file may never do is to end that.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp.runtime import cache_file as cachefile
from eagerdecomp.runtime.cache import ProgramCache

#: What is put in a place: numbers of all kinds, what belongs elsewhere, and what belongs nowhere.
PUT: tuple[Any, ...] = (
    *(-1, 0, 1, 3, 1 << 40, (1 << 63) - 1, -(1 << 63), 1 << 63, 10**30, True, False, None, [], {}, [[[]]]),
    *("exec", "cpu", "mean", "self", "aten.add.Tensor", "aten._to_copy.default", "\ud800", 1e308, 0.5),
    *(["float", "nan"], ["float", "-inf"], ["complex", "0x1p0", "0x1p0"], ["dtype", "int8"], ["dtype", "quint8"]),
    *(["layout", "sparse_csr"], ["memory_format", "channels_last"], ["device", "meta"], ["device", "cuda"]),
    *(["%", 0], ["%", 1], ["%", 4], ["%", 99], ["list"], ["list", -1], ["list", ["%", 0]], ["tuple", 2, 2, 2], ["list", None]),
    *(["size", "size", ["%", 0], 0], ["size", "size", ["%", 0], 9], ["size", "//", 1, 0], ["size", "/", 1, 2]),
)


def declines(graph: Any, inputs: Any) -> None:
    """A hook that takes nothing: what it might have fused is recorded."""


def calls(cache: ProgramCache) -> list[torch.Tensor]:
    """What ops of several kinds make of small tensors, by programs of the cache where it has them."""
    image = torch.arange(20.0).view(1, 1, 4, 5)
    generator = torch.Generator().manual_seed(1)
    with ed.EagerDecompMode(ed.Backend("hooked", ed.core_aten(), compile=declines), cache=cache):
        return [
            F.interpolate(image, size=(3, 9), mode="bicubic"),
            F.interpolate(image, scale_factor=2, mode="bilinear"),
            F.grid_sample(image, torch.zeros(1, 2, 2, 2), align_corners=False),
            F.gelu(image, approximate="tanh"),
            F.cross_entropy(torch.eye(3), torch.arange(3), label_smoothing=0.1),
            F.group_norm(torch.ones(2, 4, 3), 2),
            F.pad(image, (1, 2, 0, 1), mode="reflect"),
            torch.count_nonzero(image, dim=(0,)),
            torch.cdist(torch.ones(3, 4), torch.zeros(2, 4)),
            torch.bernoulli(torch.full((3,), 0.5), generator=generator),
            *torch.split_with_sizes_copy(torch.arange(6.0), [1, 2, 3]),
            *torch._foreach_addcmul([image, image], [image, image], [image, image], 2.0),
            *torch.native_layer_norm(torch.ones(2, 3), [3], None, None, 1e-5),
        ]


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in JSON, lists and objects themselves too."""
    if path:
        yield path
    for place, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from places(inner, (*path, place))


def sealed(path: Path, body: Any) -> None:
    """Write the body as a file with the checksum of it."""
    rest = json.dumps(body).encode() + b"\n"
    path.write_bytes(b"eagerdecomp cache 1 " + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)


def main(folder: Path, count: int, seed: int) -> None:
    """Try `count` files that differ in a place, drawn by `seed`."""
    cachefile.__dict__["_library"] = lambda: "these"  # whoever edits the sources meanwhile
    warnings.simplefilter("ignore")
    path, cache, draw, came = folder / "programs", ProgramCache(), random.Random(seed), Counter[str]()
    calls(cache)
    cache.save(path)
    body = json.loads(path.read_bytes().split(b"\n", 1)[1])
    everywhere = list(places([one["tables"] for one in body["owners"]]))
    for _ in range(count):
        changed = copy.deepcopy(body)
        owner, *inner, last = draw.choice([place for place in everywhere if len(place) > 1])
        node = changed["owners"][owner]["tables"]
        for place in inner:
            node = node[place]
        value = draw.choice(PUT)
        (folder / "last").write_text(f"{owner, *inner, last} of {node!r} becomes {value!r}", encoding="utf-8")
        node[last] = value
        sealed(path, changed)
        warm = ProgramCache()
        try:
            warm.load(path)
        except ed.CacheError:
            came["refused"] += 1
            continue
        try:
            calls(warm)
            came["used"] += 1
        except (RuntimeError, IndexError, TypeError, ValueError, ArithmeticError, MemoryError, ed.EagerDecompError) as error:
            came[f"used: {type(error).__name__}"] += 1
            if "-v" in sys.argv:
                print(
                    type(error).__name__, str(error)[:150].replace("\n", " "), "|", (folder / "last").read_text()[-300:], flush=True
                )
    print(json.dumps(came))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
