"""Whose a line is, and by which numbers gradients find the line of their forward call."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from types import FrameType

import pytest
import torch

import eagerdecomp
import eagerdecomp_script
from eagerdecomp.host.source_lines import ForwardLines, UserLines, is_users


@pytest.mark.parametrize(
    ("file", "users"),
    [
        (__file__, True),
        ("<stdin>", True),
        (f"{sysconfig.get_paths()['purelib']}/transformers/models/bert.py", True),
        (torch.nn.functional.__file__, False),
        (eagerdecomp.__file__, False),
        (eagerdecomp_script.__file__, False),
        (contextlib.__file__, False),
        ("<program of aten.gelu.default>", False),
    ],
)
def test_code_of_torch_of_ours_and_of_python_is_not_the_users(file: str, users: bool) -> None:
    assert is_users(file) == users


def frame() -> FrameType:
    return sys._getframe(1)


def test_each_line_has_one_number() -> None:
    lines = UserLines()
    forward = lines.of_thread()
    numbers = []
    for _ in range(2):
        numbers.append(lines.number_of(frame(), forward))
        numbers.append(lines.number_of(frame(), forward))
    assert numbers == [0, 1, 0, 1]
    one, other = lines.lines()
    assert one.number + 1 == other.number
    assert one.text == "numbers.append(lines.number_of(frame(), forward))"
    assert one.file == __file__


def test_a_line_belongs_to_the_first_call_after_its_node_was_made() -> None:
    x = torch.ones(2, requires_grad=True)
    forward = ForwardLines()
    forward.note(1)
    y = torch.tanh(x)
    forward.note(2)
    forward.note(3)  # a call without a node
    assert y.grad_fn is not None
    assert forward.by_node[y.grad_fn._sequence_nr()] == 2  # type: ignore[attr-defined]
