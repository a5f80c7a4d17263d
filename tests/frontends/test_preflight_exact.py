"""Preflight is exact: for torch's operator database it raises for exactly the calls that fail in `backward`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE
from sampled import SEED, part_of

import eagerdecomp as ed
from conformance.cases import Case, Selection, cases, differentiable, full_name, opinfos
from eagerdecomp.conformance.judge import clone_arguments
from eagerdecomp.ops.schema import tensors_in

pytestmark = pytest.mark.full

PARTS = 10

#: Core ATen without ops that gradients decompose into: elementwise and reductions, indices and matrices.
FEWER = {
    "indices": ["aten.scatter_add", "aten.index_put", "aten.where", "aten.convolution_backward", "aten.sign", "aten.cos"],
    "sums": ["aten.exp", "aten.gt", "aten.ge", "aten.lt", "aten.sum", "aten.native_layer_norm_backward", "aten.rsqrt"],
}

#: Their gradients go by data of their own, the value's by how many indices or set bits of a mask there are: not judged to the end.
BY_DATA = ("index_fill", "index_put")

_EAGER = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


def outcome(case: Case, ops: ed.OpSet, *, asked: bool) -> str:
    """How a case ends on a set: ``fine``, ``error`` (eager's own), ``forward`` (without a route), ``refused``; ``backward`` where
    no result can be differentiated, ``some`` where one can and not all."""
    args, kwargs = clone_arguments(case.arguments)
    with ed.EagerDecompMode(ops, preflight=asked):
        try:
            wanted = [t for t in tensors_in([case.function(*args, **kwargs)]) if t.requires_grad]
        except ed.UnsupportedGradientError:
            return "refused"
        except ed.UnsupportedOpError:
            return "forward"
        except _EAGER:
            return "error"
        failed = []
        for chosen in (wanted, *([one] for one in wanted if len(wanted) > 1)):
            try:
                if chosen:
                    torch.autograd.backward(chosen, [torch.ones_like(t) for t in chosen], retain_graph=True)
            except ed.UnsupportedOpError:
                failed.append(True)
            except _EAGER:
                return "error"
            else:
                failed.append(False)
        return "backward" if failed and all(failed) else "some" if any(failed) else "fine"


def hold(infos: list[Any], ops: ed.OpSet, samples: int, seed: int) -> None:
    """Preflight refuses exactly the cases that have no gradient on a set."""
    selection = Selection(samples=samples, grad=True)
    refusals = agreed = 0
    for info in infos:
        if not differentiable(info, selection):
            continue
        for case in cases(info, selection, seed=seed):
            plain = outcome(case, ops, asked=False)
            if plain == "forward":
                continue
            reported = outcome(case, ops, asked=True)
            if full_name(info) in BY_DATA:
                assert reported in ("refused", plain), full_name(info)
                continue
            # Of several results some may come from a call whose gradient the others do without.
            assert reported in {"backward": ("refused",), "some": ("some", "refused")}.get(plain, (plain,)), full_name(info)
            refusals += reported == "refused"
            agreed += reported == "fine"
    assert refusals > 3
    assert agreed > 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fewer", FEWER)
def test_preflight_raises_exactly_for_calls_that_fail_in_backward(fewer: str) -> None:
    hold(part_of(opinfos(), PARTS), CORE - FEWER[fewer], 2, SEED)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("fewer", FEWER)
def test_preflight_raises_exactly_for_calls_that_fail_in_backward_for_every_op(fewer: str, part: int) -> None:
    hold(opinfos()[part::PARTS], CORE - FEWER[fewer], 8, 0)
