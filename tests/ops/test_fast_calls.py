"""Direct functions call exactly their overload, with the same arguments. Each function of the table is checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from compare import assert_same
from programs import S, call, program, recorded

import eagerdecomp as ed
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import OpOverload, builtin, torch_release
from eagerdecomp.ops.fast_calls import direct_function, kind_of, load_direct, table_of
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.program.codegen import generate
from eagerdecomp.program.ir import evaluate

aten = torch.ops.aten
TOOLS = Path(__file__).parents[2] / "tools"
NAMES = sorted(load_direct())

#: The module that the fixture `tool` returns.
TOOL = "prove_direct"


# -- the table ---------------------------------------------------------------------------------------------------------------


def wrong(tool: Any, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the wrong entries of the table."""
    table, ops = load_direct(), {name: resolve_ops([name])[0] for name in names}
    return tool.run_in_handler(
        lambda: [(name, path) for name, op in ops.items() for path, holds in tool.check_entry(op, table[name]) if not holds]
    )


@pytest.mark.full
@pytest.mark.parametrize("part", range(8))
def test_each_function_of_the_table_reaches_only_its_overload(tool: Any, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    monkeypatch.setattr(tool, "COMBINATIONS", 60)  # the script uses more combinations
    assert wrong(tool, NAMES[part::8]) == []


FALSE_CLAIMS: dict[str, tuple[OpOverload, Any]] = {
    "another overload": (aten.add.Scalar, "torch.add"),
    "other arguments": (aten.where.self, "Tensor.where"),
    "another overload where a tensor has no dimensions": (aten.where.self, "torch.where"),
    "a device that was not asked for": (aten.full.default, "torch.full"),
    "kinds that lead elsewhere": (aten.clamp.default, [["torch.clamp", "t", "n", "n"]]),
    "several ops": (aten._local_scalar_dense.default, "Tensor.tolist"),
}


@pytest.mark.parametrize("name", FALSE_CLAIMS)
def test_a_wrong_entry_is_found(tool: Any, name: str) -> None:
    op, written = FALSE_CLAIMS[name]
    assert [holds for _, holds in tool.run_in_handler(lambda: list(tool.check_entry(op, written)))] == [False]


@pytest.mark.full
def test_the_script_writes_the_table(tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    output = tmp_path / "direct.json"
    monkeypatch.setattr("sys.argv", ["prove_direct.py", "--match", r"^aten::(mul|clamp|var)(\.|$)", "--output", str(output)])
    assert tool.main() == 0
    made = table_of(json.loads(output.read_text(encoding="utf-8")), torch_release())
    assert made == {name: load_direct()[name] for name in NAMES if name.split(".")[1] in ("mul", "clamp", "var")}
    output.write_text(json.dumps({"base": {"aten.mul.Tensor": "torch.div"}, torch_release(): {}}), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["prove_direct.py", "--match", r"^aten::mul(\.|$)", "--output", str(output), "--check"])
    assert tool.main() == 1


def test_a_release_has_the_entries_of_the_base_but_for_those_that_differ() -> None:
    tables = {"base": {"a": "torch.a", "b": "torch.b"}, "2.14": {"b": None, "c": "torch.c"}}
    assert table_of(tables, "2.14") == {"a": "torch.a", "c": "torch.c"}
    assert table_of(tables, "2.0") == {}


# -- which function for which call ---------------------------------------------------------------------------------------------


def test_the_function_depends_on_the_kinds_of_arguments() -> None:
    def found(op: OpOverload, *values: Any) -> Any:
        kinds = [kind_of(a, v) if v is not Ellipsis else "-" for a, v in zip(facts_of(op).arguments, values, strict=True)]
        return direct_function(op, ["t", *kinds[1:]])

    assert found(aten.var.correction, X, [0], 1, ...) is torch.Tensor.var
    assert found(aten.var.correction, X, [0], ..., ...) is None, "that is `var.dim`"
    assert found(aten.var.correction, X, [S[0]], 1, ...) is None, "no kind is known for it"
    assert found(aten.clamp.default, X, 1, None) is torch.Tensor.clamp
    assert found(aten.clamp.default, X, None, None) is None, "that is `clamp.Tensor`"
    assert found(aten.add.Scalar, X, 1, ...) is None


# -- programs --------------------------------------------------------------------------------------------------------------------


class Listener(DispatchMode):
    """A mode that records ops and arguments: tensors by metadata, others by type and text."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        reported = {name: value for name, value in (kwargs or {}).items() if name != "pin_memory"}
        self.calls.append((func, plain(list(args)), plain(sorted(reported.items()))))
        return func(*args, **(kwargs or {}))


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.shape, value.stride(), value.dtype, value.device, repr(value.tolist()))
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return (type(value), repr(value))


X = torch.linspace(-2, 2, 12).reshape(3, 4)
SOME: dict[str, tuple[OpOverload, tuple[Any, ...], dict[str, Any]]] = {
    "layer norm": (aten.native_layer_norm.default, (X, [4], torch.ones(4), None, 1e-5), {}),
    "gelu_backward": (aten.gelu_backward.default, (X, X), {}),
    "logaddexp of two types": (aten.logaddexp.default, (X, X.double()), {}),
    "infinities": (aten.nan_to_num.default, (X / 0, None, 3.0, -3.0), {}),
    "batch norm": (aten.native_batch_norm.default, (X, None, None, None, None, True, 0.1, 1e-5), {}),
    "a list": (aten.stack.default, ([X, X], 1), {}),
    "in place": (aten.lerp_.Scalar, (X.clone(), X + 1, 0.3), {}),
}


def reached(run: Any, values: Sequence[Any]) -> tuple[list[Any], Any]:
    values = [value.clone() if isinstance(value, torch.Tensor) else value for value in values]
    with Listener() as observed:
        result = run(*values)
    return observed.calls, result


@pytest.mark.parametrize("name", SOME)
def test_a_program_reaches_the_backend_as_with_boxed_calls(name: str) -> None:
    from eagerdecomp.ops.schema import arguments_of
    from eagerdecomp.program.key import program_arguments

    op, args, kwargs = SOME[name]
    made = recorded(op, *args, ops=ed.core_aten() - ["aten.native_layer_norm"], **kwargs)
    values = program_arguments(op, arguments_of(op, args, kwargs))
    run = generate(made, builtin)
    boxed_calls, boxed = reached(lambda *given: evaluate(made, builtin, given), values)
    direct_calls, direct = reached(run, values)
    assert direct_calls == boxed_calls
    assert_same(direct, boxed, exact=True)
    used = [value for value in run.__globals__.values() if callable(value) and value is not run]
    assert any(value not in [builtin(one.op) for one in made.calls] for value in used), "every call is boxed"


# -- in the mode -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("default_device")
def test_a_default_device_does_not_reach_the_kernels_of_a_program() -> None:
    cpu = torch.device("cpu")
    x = torch.linspace(-2, 2, 6, device=cpu).requires_grad_()
    with ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()):
        for _ in range(4):
            x.grad = None
            # This way to compute a gradient leaves `__torch_function__` modes on.
            torch.autograd.backward(torch.nn.functional.silu(x).cumprod(0).sum())
            assert x.grad is not None
            assert x.grad.device == cpu
    with torch.device("cpu"):
        y = x.detach().clone().requires_grad_()
        torch.nn.functional.silu(y).cumprod(0).sum().backward()
        assert_same(x.grad, y.grad)


class Doubling(torch.Tensor):
    """A subclass that overrides multiplication for its user's calls."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 2 if func is torch.mul else result


def test_a_subclass_sees_only_its_users_calls() -> None:
    x = torch.linspace(-2, 2, 6)

    def run() -> list[Any]:
        sub = x.clone().as_subclass(Doubling).requires_grad_()
        result = torch.mul(sub, x)
        (torch.nn.functional.silu(result) * x).sum().backward()
        assert type(result) is Doubling
        return [result.detach().as_subclass(torch.Tensor), sub.grad.as_subclass(torch.Tensor)]

    want = run()
    with ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()):
        for _ in range(4):
            assert_same(run(), want)


def test_a_generator_that_is_an_argument_reaches_the_kernel() -> None:
    drawn = program([S[0], S[1]], [call(S[2], aten.bernoulli.default, S[0], generator=S[1])], S[2], op=aten.bernoulli.default)
    generator = torch.Generator().manual_seed(3)
    run = generate(drawn, builtin)
    assert torch.bernoulli in run.__globals__.values() or torch.Tensor.bernoulli in run.__globals__.values()
    first = run(torch.full((64,), 0.5), generator)
    assert first.tolist() == torch.bernoulli(torch.full((64,), 0.5), generator=torch.Generator().manual_seed(3)).tolist()


def test_a_backends_kernel_takes_precedence_over_the_direct_function() -> None:
    seen: list[str] = []

    def mul(x: Any, y: Any) -> Any:
        seen.append("mul")
        return builtin(aten.mul.Tensor)(x, y)

    x = torch.randn(3)
    with ed.EagerDecompMode(ed.core_aten(), kernels={"aten.mul.Tensor": mul}, cache=ed.ProgramCache()):
        _ = x * x
        assert seen == ["mul"]
        for _ in range(4):  # recorded, replayed, compiled, from the cache
            torch.nn.functional.softplus(x) * torch.nn.functional.silu(x)
    assert len(seen) > 5
