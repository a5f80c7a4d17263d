"""Ops of `torch.library`: ops with a composite body decompose, others raise, and ops of the set run as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from on_core import CORE, on, on_core
from torch import Tensor

import eagerdecomp as ed

_calls = 0


def _counting(x: Tensor) -> Tensor:
    global _calls
    _calls += 1
    return x * _calls


#: Bodies that read data without an op.
BODIES: dict[str, Callable[[Tensor], Tensor]] = {
    "tolist": lambda x: x * sum(x.tolist()),
    "a global": _counting,
    "item": lambda x: x * 2 if x.sum().item() > 0 else x.sin(),
}


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("edcustom", "FRAGMENT") as library:
        yield library


def define(library: torch.library.Library, schema: str, fn: Callable[..., Any], key: str) -> Any:
    name = schema.partition("(")[0]
    library.define(schema)
    library.impl(name, fn, key)
    return getattr(torch.ops.edcustom, name).default


def draws(count: int = 4) -> list[Tensor]:
    return [x.clone() for x in torch.randn(count, 3, generator=torch.Generator().manual_seed(0))]


@pytest.mark.parametrize("key", ["CompositeExplicitAutograd", "CompositeImplicitAutograd"])
@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_reads_data_without_an_op_runs_at_every_call(body: str, key: str, library: torch.library.Library) -> None:
    """A program recorded at the first call would contain the values of that call."""
    global _calls
    op = define(library, "read(Tensor x) -> Tensor", BODIES[body], key)

    def run() -> list[Tensor]:
        global _calls
        _calls = 0
        with torch.inference_mode():  # outside of inference mode a composite is decomposed above the mode
            return [op(x) for x in draws()]

    want = run()
    for have, one in zip(on_core(run), want, strict=True):
        torch.testing.assert_close(have, one)


def test_a_user_rule_comes_before_the_body_and_is_recorded(library: torch.library.Library) -> None:
    op = define(library, "twice(Tensor x) -> Tensor", BODIES["tolist"], "CompositeExplicitAutograd")
    rule = ed.register_decomposition(op)(lambda x: x + x)
    with on(CORE, rules=[rule]) as (mode, _):
        found = [op(x) for x in draws()]
    torch.testing.assert_close(found, [x + x for x in draws()])
    assert mode.stats()[op].hits == 3


def test_an_opaque_op_of_the_set_is_differentiable(library: torch.library.Library) -> None:
    op = define(library, "opaque(Tensor x) -> Tensor", lambda x: x.exp(), "CPU")
    torch.library.register_autograd(
        "edcustom::opaque",
        lambda ctx, grad: grad * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
        lib=library,
    )

    def run() -> tuple[Tensor, ...]:
        x = draws()[0].requires_grad_()
        return torch.autograd.grad(op(x).sum(), x)

    torch.testing.assert_close(on_core(run, CORE | [str(op)]), run())
    backend = ed.Backend("mine", CORE | [str(op)], kernels={str(op): lambda x: torch.exp(x) + 1})
    with ed.EagerDecompMode(backend):
        assert op(torch.zeros(1)).item() == 2.0


# -- the error ----------------------------------------------------------------------------------------------------


def test_the_error_of_an_op_without_a_body_shows_how_to_add_a_rule(library: torch.library.Library) -> None:
    op = define(library, "hidden(Tensor x, int n=2, *, float[2] by=[1., 2.], str? how=None) -> Tensor", lambda *_, **__: 0, "CPU")
    with pytest.raises(ed.UnsupportedOpError) as caught, ed.EagerDecompMode(CORE):
        op(torch.ones(2))
    first, *lines = caught.value.hint.splitlines()
    assert "rules=[rule]" in first
    assert len(lines) == 2
    named: dict[str, Any] = {"eagerdecomp": ed}
    exec("\n".join(line[2:] for line in lines).replace("...", "x * n + by[1]"), named)
    with on(CORE, rules=[named["rule"]]):
        assert op(torch.ones(2), by=[0.0, 5.0]).tolist() == [7.0, 7.0]


def test_an_error_of_a_body_is_the_users(library: torch.library.Library) -> None:
    def body(x: Tensor) -> None:
        x.mul_(2)
        raise ValueError(f"bad length {len(x)}")

    op = define(library, "length_(Tensor(a!) x) -> ()", body, "CompositeExplicitAutograd")
    with pytest.raises(ValueError, match="bad length 3"), ed.EagerDecompMode(CORE):
        op(torch.ones(3))


def test_a_result_that_no_op_computed_is_not_a_decomposition(library: torch.library.Library) -> None:
    def body(x: Tensor) -> Tensor:
        made = torch.empty_like(x)
        made.numpy()[:] = x.numpy() * 2
        return made

    op = define(library, "outside(Tensor x) -> Tensor", body, "CompositeExplicitAutograd")
    with pytest.raises(ed.UnsupportedOpError, match="makes the result itself, without an op"), ed.EagerDecompMode(CORE):
        op(torch.ones(2))
