"""Rules for ops of other libraries: found by name once the library has registered its ops, and loaded with the first of them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from on_core import CORE, on_core

import eagerdecomp as ed
from eagerdecomp.decomps.libraries.torchvision import deform_conv, nms, roi_pooling
from eagerdecomp.decomps.libraries.torchvision.checks import check_dtype
from eagerdecomp.rules import rule as rule_module
from eagerdecomp.rules.rule import dropped_rules, library_rule, library_rules, make_rule

SCHEMAS = {
    nms.nms: "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    roi_pooling.roi_align: "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    roi_pooling.roi_pool: "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    roi_pooling.ps_roi_pool: "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    roi_pooling.roi_align_backward: "(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor",
    deform_conv.deform_conv2d: "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, "
    "bool use_mask) -> Tensor",
}
ROIS = torch.tensor([[0.0, 0.5, 0.5, 3.0, 3.0], [0.0, -2.0, 1.0, 2.0, 9.0]])
IMAGE = torch.arange(50.0).sin().view(1, 2, 5, 5)
CALLS: dict[Any, tuple[Any, ...]] = {
    nms.nms: (ROIS[:, 1:], torch.tensor([0.1, 0.7]), 0.5),
    roi_pooling.roi_align: (IMAGE, ROIS, 1.0, 2, 2, 0, True),
    roi_pooling.roi_pool: (IMAGE, ROIS, 1.0, 2, 2),
    roi_pooling.ps_roi_pool: (IMAGE, ROIS, 1.0, 1, 2),
    roi_pooling.roi_align_backward: (torch.ones(2, 2, 2, 2), ROIS, 1.0, 2, 2, 1, 2, 5, 5, 2, False),
    deform_conv.deform_conv2d: (
        *(IMAGE, torch.ones(1, 2, 1, 1), torch.full((1, 2, 5, 5), 0.3), torch.ones(1, 1, 5, 5), torch.ones(1)),
        *(1, 1, 0, 0, 1, 1, 1, 1, True),
    ),
}


@pytest.mark.parametrize("fn", CALLS, ids=lambda fn: fn.__name__)
def test_a_rule_runs_linked_as_it_does_unlinked(fn: Any) -> None:
    """An op of torchvision's schema in a namespace of our own, since torchvision may be there or not."""
    with torch.library._scoped_library("edvision", "FRAGMENT") as library:
        library.define(f"{fn.__name__}{SCHEMAS[fn]}")
        op = getattr(torch.ops.edvision, fn.__name__).default
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE, rules=[make_rule(op, fn)]):
            have = op(*CALLS[fn])
        assert not seen.outside(CORE)
    torch.testing.assert_close(have, on_core(lambda: fn(*CALLS[fn])), rtol=0, atol=0)


def test_a_rule_is_found_once_its_op_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_module, "_of_libraries", {})

    @library_rule("edlater.twice.default")
    def twice(x: torch.Tensor) -> Any:
        return torch.ops.aten.add.Tensor(x, x)

    assert "edlater.twice.default" not in dropped_rules()
    with torch.library._scoped_library("edlater", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.define("thrice(Tensor x) -> Tensor")
        (rule,) = library_rules(torch.ops.edlater.twice.default)
        assert rule.linked
        assert rule.source == "own"
        assert library_rules(torch.ops.edlater.thrice.default) == ()
    with pytest.raises(ed.EagerDecompError, match=r"two rules for edlater\.twice\.default, .*twice:\d+ and .*twice:\d+"):
        library_rule("edlater.twice.default")(twice)


@pytest.mark.full
def test_rules_are_loaded_with_the_first_op_of_their_library() -> None:
    """The mode is there before the library is; a library that is never used loads nothing."""
    script = """
import sys, torch, eagerdecomp as ed

mode = ed.EagerDecompMode(ed.core_aten())
folder = "eagerdecomp.decomps.libraries.torchvision"
with mode:
    torch.ones(2) + 1
    assert folder not in sys.modules
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.0], [5.0, 5.0, 6.0, 6.0]])
    print(torch.ops.torchvision.nms(boxes, torch.tensor([0.1, 0.7, 0.3]), 0.5).tolist())
    assert folder in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[1, 2]", done.stderr


def test_off_the_cpu_torchvisions_kernels_take_every_floating_dtype() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        check_dtype("nms", torch.empty(2, dtype=dtype, device="meta"), (torch.float32,))
    with pytest.raises(RuntimeError, match="not implemented for 'Int'"):
        check_dtype("nms", torch.empty(2, dtype=torch.int32, device="meta"))
