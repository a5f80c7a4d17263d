"""Programs that Inductor compiles return what they did call by call, and what it should not compile it declines.

Tests that compile are skipped where no C++ compiler is installed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from compare import assert_same
from threads import together
from torch.utils._triton import has_triton_package

import eagerdecomp as ed
from eagerdecomp._torch.tensors import FakeTensorMode
from eagerdecomp.backends import inductor
from eagerdecomp.backends.inductor import _declines, cpp_compiler, inductor_hook
from eagerdecomp.program.compile_hook import HITS_BEFORE_FUSING

aten = torch.ops.aten
OPS = ed.core_aten() - [
    *("aten.native_layer_norm", "aten.native_layer_norm_backward", "aten.gelu", "aten.gelu_backward", "aten._softmax"),
    *("aten._softmax_backward_data", "aten._native_batch_norm_legit", "aten.native_dropout", "aten.relu"),
]
BEFORE = HITS_BEFORE_FUSING + 1
compiles = pytest.mark.skipif(
    cpp_compiler() is None, reason="no C++ compiler is installed: inductor_hook has nothing to compile with"
)


class Noted:
    """The hook, and what it took and declined, by program."""

    def __init__(self) -> None:
        self.took: list[str] = []
        self.declined: list[str] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        function = inductor_hook(graph, inputs)
        (self.declined if function is None else self.took).append(graph.__class__.__name__.removesuffix("_program"))
        return function


def fused(run: Callable[[], Any], hook: Any = None) -> Any:
    """Return the result of the first fused call; all calls before it ran kernel by kernel."""
    with ed.EagerDecompMode(ed.Backend("cpu", OPS, compile=hook or inductor_hook), cache=ed.ProgramCache()):
        for _ in range(BEFORE):
            run()
        return run()


def check(run: Callable[..., Any], *args: Any, took: str | None = "", exact: bool = False) -> None:
    """A fused call does what the mode does without a hook; `took` is the op whose program was fused, None where none is."""
    hook = Noted()

    def copies() -> Any:
        return [[one.clone() for one in value] if isinstance(value, list) else value.clone() for value in args]

    theirs: Any = copies()
    kept: list[Any] = []

    def once() -> Any:
        kept.append(copies())
        return run(*kept[-1])

    with ed.EagerDecompMode(OPS):
        want = run(*theirs)
    got = fused(once, hook)
    assert_same(got, want, exact=exact)
    assert_same(kept[-1], theirs, exact=exact)
    if took is None:
        assert not hook.took, "taken"
        assert hook.declined
    else:
        assert took in hook.took, f"declined: {hook.declined}"


torch.manual_seed(0)
X, Y, W, B = torch.randn(64, 48), torch.randn(64, 48), torch.rand(48) + 0.5, torch.randn(48)
IMAGE = torch.randn(4, 8, 6, 6)
C = torch.rand(8) + 0.5
ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "amsgrad": False, "maximize": False}


def adamw(*lists: list[torch.Tensor]) -> None:
    torch._fused_adamw_(*lists[:4], [], lists[4], **ADAM)


@pytest.mark.full
@compiles
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layer_norm_forward_and_backward(dtype: torch.dtype) -> None:
    x, y, w, b = (one.to(dtype) for one in (X, Y, W, B))
    check(lambda x, w, b: torch.native_layer_norm(x, [48], w, b, 1e-5), x, w, b, took="native_layer_norm")
    _, mean, rstd = torch.native_layer_norm(x, [48], w, b, 1e-5)
    check(
        lambda y, x, m, r, w, b: aten.native_layer_norm_backward(y, x, [48], m, r, w, b, [True, True, True]),
        *(y, x, mean, rstd, w, b),
        took="native_layer_norm_backward",
    )


@pytest.mark.full
@compiles
@pytest.mark.parametrize("channels_last", [False, True])
def test_batch_norm_writes_its_running_statistics(channels_last: bool) -> None:
    x = IMAGE.contiguous(memory_format=torch.channels_last) if channels_last else IMAGE
    check(lambda x, w, b, m, v: torch.native_batch_norm(x, w, b, m, v, True, 0.1, 1e-5), x, C, C, C, C, took="native_batch_norm")
    _, mean, rstd = torch.native_batch_norm(x, C, C, C.clone(), C.clone(), True, 0.1, 1e-5)
    check(
        lambda y, x, w, m, v, sm, si: aten.native_batch_norm_backward(y, x, w, m, v, sm, si, True, 1e-5, [True, True, True]),
        *(x * 2, x, C, C, C, mean, rstd),
        took="native_batch_norm_backward",
    )


@pytest.mark.full
@compiles
def test_adam_writes_each_list_in_place() -> None:
    shapes = ([48], [64, 48], [7])
    lists = [[torch.rand(shape) for shape in shapes] for _ in range(4)]
    steps = [torch.tensor(float(step)) for step in (1, 10, 3)]
    check(adamw, *lists, steps, took="_fused_adamw_")


@pytest.mark.full
@compiles
@pytest.mark.parametrize("shape", ["transposed", "sliced", "expanded operand"])
def test_writes_to_tensors_of_other_layouts(shape: str) -> None:
    base, other = torch.rand(6, 8), torch.rand(6, 8)

    def run(base: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        target = {"transposed": base.t(), "sliced": base[::2, 1:5], "expanded operand": base}[shape]
        operand = other[:1].expand(6, 8) if shape == "expanded operand" else other.t() if shape == "transposed" else other[::2, 1:5]
        return target.addcmul_(operand, operand, value=0.5)

    check(run, base, other, took="addcmul_", exact=True)


@pytest.mark.full
@compiles
def test_float16_and_bfloat16_are_rounded_where_the_program_rounds() -> None:
    x, y = X.bfloat16(), Y.bfloat16()
    check(lambda x, y: torch.addcmul(x, x, y, value=0.3), x, y, took="addcmul", exact=True)
    function = inductor_hook(graph_of(lambda x, y: ((x + y) - x,), x, y), [])
    assert function is not None
    assert_same(function(x, y)[0], (x + y) - x, exact=True)


@pytest.mark.full
@compiles
@pytest.mark.parametrize(
    ("run", "args"),
    [
        (lambda x: torch.addcmul(x, x, x), (torch.randn(3, dtype=torch.complex64),)),
        (lambda x: torch.addcmul(x, x, x), (torch.randn(0, 3),)),
        (
            lambda x, a, b: torch.baddbmm(x, a, b, beta=0.5, alpha=2.0),
            (torch.randn(2, 3, 3), torch.randn(2, 3, 3), torch.randn(2, 3, 3)),
        ),
    ],
    ids=["complex", "empty", "matrix product"],
)
def test_programs_that_inductor_would_leave_to_aten_are_declined(run: Any, args: Any) -> None:
    check(run, *args, took=None)


@compiles
def test_products_are_declined_before_code_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "_sum_by_rows", lambda graph: pytest.fail("too late"))
    assert inductor_hook(graph_of(lambda x: (x @ x + 1,), torch.randn(3, 3)), []) is None


@pytest.mark.full
@compiles
def test_compiled_programs_are_kept_on_disk() -> None:
    from torch._dynamo.utils import counters

    before = counters["inductor"].copy()
    assert inductor_hook(graph_of(lambda x: (x.exp() + 1,), torch.randn(3, 3)), []) is not None
    made = counters["inductor"] - before
    assert (made["fxgraph_cache_bypass"], made["fxgraph_cache_hit"] + made["fxgraph_cache_miss"]) == (0, 1)


def test_programs_with_random_ops_are_declined_and_return_the_same_numbers() -> None:
    hook = Noted()
    torch.manual_seed(3)
    got = fused(lambda: torch.native_dropout(X, 0.5, True), hook)
    assert hook.took == []
    assert hook.declined
    torch.manual_seed(3)
    with ed.EagerDecompMode(OPS):
        want = [torch.native_dropout(X, 0.5, True) for _ in range(BEFORE + 1)]
    assert_same(got, want[-1])


def graph_of(run: Callable[..., Any], *args: torch.Tensor, mode: str = "fake") -> torch.fx.GraphModule:
    """A graph as a hook gets it."""
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(run, tracing_mode=mode)(*args)
    (output,) = graph.graph.find_nodes(op="output")
    output.args = (tuple(output.args[0]),)
    return graph


@pytest.mark.parametrize(
    "run",
    [lambda x: (x + 1, x[1:]), lambda x: ((y := x + 1), y[1:]), lambda x: ((x + 1)[:1].expand(3, 4),), lambda x: (x,)],
    ids=["view of an argument", "view of a result", "expanded", "an argument"],
)
def test_results_that_share_memory_are_declined(run: Any) -> None:
    assert inductor_hook(graph_of(run, torch.randn(3, 4)), []) is None


def test_programs_on_other_devices_are_declined() -> None:
    for device, declined in (("cpu", False), ("meta", True)):
        assert _declines(graph_of(lambda x: (x.exp() + 1,), torch.empty(3, 4, device=device))) == declined
    with FakeTensorMode():
        x, y = torch.empty(3, device="cuda:0"), torch.empty(3)
    assert not _declines(graph_of(lambda x: (x.exp() + 1,), x, mode="real"))
    assert _declines(graph_of(lambda x, y: (x.exp() + 1, y * 2), x, y, mode="real")), "tensors on two devices"


class Generated(BaseException):
    """Inductor's code, raised before it is loaded, which needs a GPU."""


@pytest.mark.full
@pytest.mark.skipif(not has_triton_package(), reason="Triton is not installed")
def test_on_a_gpu_a_program_over_lists_is_one_kernel_for_many_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generate Triton code for a GPU of compute capability 9.0, which need not be there."""
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import scheduler
    from torch._inductor.graph import GraphLowering
    from torch._inductor.runtime.hints import DeviceProperties

    known = SimpleNamespace(
        **DeviceProperties("cuda", 0, 132, 90, 9, 65536, 2048, 1024, 32)._asdict(), minor=0, gcnArchName="", total_memory=1 << 36
    )

    def generated(code: Any) -> None:
        raise Generated(code)

    for place in (torch.cuda, CudaInterface):
        monkeypatch.setattr(place, "get_device_properties", lambda device=None: known)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for module in (torch.utils._triton, scheduler):
        monkeypatch.setattr(module, "has_triton", lambda: True)
    monkeypatch.setattr(torch.utils._triton, "triton_hash_with_backend", lambda *args: "")
    monkeypatch.setattr(GraphLowering, "save_output_code", staticmethod(generated))
    DeviceProperties.create.cache_clear()

    def run(*tensors: torch.Tensor) -> Any:
        return [one.mul_(2).add_(1) for one in tensors][:0]

    with FakeTensorMode():
        tensors = [torch.empty(8, size, device="cuda:0") for size in range(2, 72)]
    try:
        with pytest.raises(Generated) as caught:
            inductor_hook(graph_of(run, *tensors, mode="real"), [])
    finally:
        DeviceProperties.create.cache_clear()
    launches = str(caught.value).count(".run(")
    assert 1 < launches <= 4, "70 tensors, at most 64 in a kernel"
    assert not inductor._calls_aten(str(caught.value))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is at hand")
def test_on_a_gpu_results_are_those_of_the_kernels() -> None:
    x, w, b = (one.cuda() for one in (X, W, B))
    check(lambda x, w, b: torch.native_layer_norm(x, [48], w, b, 1e-5), x, w, b, took="native_layer_norm")
    lists = [[torch.rand(shape, device="cuda") for shape in ([48], [64, 48], [7])] for _ in range(4)]
    check(adamw, *lists, [torch.tensor(1.0, device="cuda")] * 3, took="_fused_adamw_")
    shifted = torch.randn(65 * 48 + 1, device="cuda")[1:].view(65, 48)  # Triton's kernels read aligned memory, and this is not
    check(lambda x: torch.nn.functional.gelu(x), shifted, took="gelu")


@pytest.mark.full
@compiles
def test_a_single_number_is_stored_not_computed_for_each_element() -> None:
    graph = graph_of(lambda x, step: (x * torch.pow(0.9, step),), torch.randn(64), torch.tensor(2.0))
    traced, _ = inductor._functional(graph)
    inductor._store_one_element_tensors(traced)
    assert [str(node.target) for node in traced.graph.nodes if node.op == "call_function"] == [
        "aten.pow.Scalar",
        "eagerdecomp.kept.default",
        "aten.mul.Tensor",
    ]
    function = inductor_hook(graph, [])
    assert function is not None
    torch.testing.assert_close(function(torch.ones(64), torch.tensor(3.0))[0], torch.full((64,), 0.9**3))


@pytest.mark.full
@compiles
@pytest.mark.parametrize(
    ("shape", "dims", "dtype", "split"),
    [
        ((512, 8), [0], torch.float32, True),
        ((32, 16, 8), [0, 1], torch.float64, True),
        ((512, 8), [0], torch.bfloat16, False),
        ((512, 8), [1], torch.float32, False),
    ],
)
def test_long_sums_over_leading_dimensions_are_taken_by_rows(shape: Any, dims: Any, dtype: Any, split: bool) -> None:
    x = torch.randn(shape).to(dtype)
    graph = graph_of(lambda x: (aten.sum.dim_IntList(x * 2, dims),), x)
    traced, _ = inductor._functional(graph)
    inductor._sum_by_rows(traced)
    sums = [node for node in traced.graph.nodes if node.target is aten.sum.dim_IntList]
    assert len(sums) == 1 + split
    torch.testing.assert_close(traced(x)[0], (x * 2).sum(dims))


@pytest.mark.full
@compiles
def test_a_fused_call_and_its_compilation_reach_no_outer_mode() -> None:
    with ed.BackendRecorder() as seen:
        fused(lambda: torch.nn.functional.gelu(X))
    assert seen.ops[aten.erf.default] == BEFORE
    assert not seen.outside(OPS)


@pytest.mark.full
@compiles
def test_a_fused_program_runs_in_many_threads_and_under_any_grad_state() -> None:
    mode, want, wrong = ed.EagerDecompMode(ed.Backend("cpu", OPS, compile=inductor_hook)), torch.nn.functional.gelu(X), []

    def work() -> None:
        with mode, torch.no_grad():
            for _ in range(20):
                if not torch.allclose(torch.nn.functional.gelu(X), want, atol=1e-5):
                    wrong.append(threading.get_ident())

    with mode:
        for _ in range(BEFORE + 1):
            torch.nn.functional.gelu(X)
    together(*[work] * 4)
    assert wrong == []
    with mode, torch.inference_mode():
        torch.testing.assert_close(torch.nn.functional.gelu(X), want)


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "cpp_compiler", lambda: None)
    with pytest.raises(ed.EagerDecompError, match=r"needs a C\+\+ compiler, and none was found. Install g\+\+") as caught:
        fused(lambda: torch.nn.functional.gelu(X))
    assert isinstance(caught.value, ed.HookError)
