"""How far apart two runs of one call may be, judged by digests: by rounding, and by the distance of their inputs.

The allowed distance of an output is that of the one comparer (`eager/tolerance.py`), plus a multiple of the output's *scale*: what
the op adds up before terms cancel, such as the product of the norms of two matrices. The multiple is that of the comparer for
rounded inputs, plus the relative distance of the inputs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from eagerdecomp.eager.tolerance import Tolerance, tolerance_of
from eagerdecomp.ops.call_text import SHORT_DTYPES
from eagerdecomp.recording.digest import TensorDigest, distance, relative_distance, scaled_distance
from eagerdecomp.recording.run_folder import RecordedCall, Value

__all__ = ["AGREE", "allowed_distance", "beside_large", "distance_of_inputs", "distance_of_values", "dtype_of", "shape_of"]

#: Inputs that are farther apart than this, relative to their norm, do not agree, so the outputs of their call are not judged.
AGREE = 0.05

# Factors of the scale: for rounding in the call (as the comparer's for rounded inputs), and for the distance of the inputs, which
# projections estimate.
_ROUNDINGS = 16
_DRIFT = 8

# From this size on, elements mask others: digests show on the logarithmic scale what is beside them.
_MASKING = 2.0**20

# The relative rounding error of TF32, with which a GPU may compute products.
_TF32 = 2.0**-10

_DTYPES = {text: dtype for dtype, text in SHORT_DTYPES.items()}
_SIZES = re.compile(r"\[([\d, ]*)\]")


@cache
def dtype_of(text: str) -> torch.dtype | None:
    """Return the dtype of a tensor, or of the first one of a list, from its text."""
    name = text.lstrip("[").partition("[")[0]
    found = _DTYPES.get(name) or getattr(torch, name, None)
    return found if isinstance(found, torch.dtype) else None


@cache
def shape_of(text: str) -> tuple[int, ...]:
    """Return the sizes of a tensor from its text."""
    found = _SIZES.search(text)
    return tuple(int(one) for one in found[1].split(",") if one.strip()) if found else ()


@dataclass(frozen=True)
class _Output:
    """An output of a call whose scale is computed: its digest, its index, and the digests of the call.

    Attributes:
        moved: whether the scale is that of a distance of the inputs, not that of rounding in the call.
    """

    call: RecordedCall
    digest: TensorDigest
    index: int
    moved: bool = False

    @property
    def norm(self) -> float:
        return self.digest.norm

    def named(self, *names: str) -> TensorDigest | None:
        """Return the digest of the first input or output with one of these names that has one."""
        for value in (*self.call.inputs, *self.call.outputs):
            if value.name in names and value.digest is not None:
                return value.digest
        return None

    def floats(self) -> list[TensorDigest]:
        return [one.digest for one in self.call.inputs if one.digest is not None and _is_inexact(one)]

    def spread(self, digest: TensorDigest) -> float:
        """Return the norm of a tensor that is broadcast to, or summed to, the size of the output."""
        return digest.norm * math.sqrt(max(1.0, self.digest.size / max(1, digest.size)))


_Scale = Callable[[_Output], float]


def _own(one: _Output) -> float:
    return one.norm


def _terms(one: _Output) -> float:
    """A sum of the inputs: ``add``, ``lerp``."""
    return one.norm + sum(map(one.spread, one.floats()))


def _summed(one: _Output) -> float:
    """Sums of some elements of the inputs. By Cauchy-Schwarz, sums of n elements have at most sqrt(n) times the norm."""
    return max((x.norm * math.sqrt(max(1.0, x.size / max(1, one.digest.size))) for x in one.floats()), default=0.0) + one.norm


def _averaged(one: _Output) -> float:
    return max((x.norm / math.sqrt(max(1.0, x.size / max(1, one.digest.size))) for x in one.floats()), default=0.0) + one.norm


def _variance(one: _Output) -> float:
    return one.norm + math.sqrt(one.digest.size) * max((x.largest * x.largest + x.largest for x in one.floats()), default=0.0)


def _product(one: _Output) -> float:
    """A product of matrices has at most the product of their norms."""
    found = one.floats()
    added = sum(map(one.spread, found[:-2]))
    return one.norm + added + math.prod(x.norm for x in found[-2:])


def _convolution(one: _Output) -> float:
    tensors = [value for value in one.call.inputs if value.digest is not None and _is_inexact(value)]
    weight = next((value for value in tensors if value.name == "weight"), None)
    reads = math.sqrt(math.prod(shape_of(weight.text)[2:])) if weight is not None else 1.0  # how often an element is read
    norms = {value.name: value.digest.norm for value in tensors if value.digest is not None}
    grad = norms.get("grad_output")
    if grad is None:
        return one.norm + reads * math.prod(norms.get(name, 1.0) for name in ("input", "self", "weight"))
    summed = math.sqrt(max(1.0, one.floats()[0].size / max(1, one.digest.size)))
    return one.norm + grad * max(reads * norms.get("weight", 1.0), reads * norms.get("input", norms.get("self", 1.0)), summed)


def _inverse_deviation(one: _Output) -> float:
    found = one.named("rstd", "save_invstd", "invstd", "save_rstd", "result 2")
    if found is not None and found.size:
        return found.largest
    variance = one.named("running_var", "save_var")
    return 1 / math.sqrt(variance.min + 1e-5) if variance is not None and variance.min >= 0 else 1.0


def _norm_forward(one: _Output) -> float:
    x, weight = one.named("input", "self"), one.named("weight")
    if x is None:
        return one.norm
    if one.index == 0:
        return one.norm + x.norm * _inverse_deviation(one) * max(1.0, weight.largest if weight is not None else 1.0)
    # The statistics: sums of the elements and of their squares.
    spread = x.largest * _inverse_deviation(one)
    relative = 1 + spread * spread  # a power of a large float would raise
    return one.norm * relative + math.sqrt(one.digest.size) * (x.rms + x.rms * x.rms)


def _norm_backward(one: _Output) -> float:
    grad, weight = one.named("grad_out", "grad_output", "grad", "dY"), one.named("weight", "gamma")
    if grad is None:
        return one.norm
    summed = math.sqrt(max(1.0, grad.size / max(1, one.digest.size)))
    gain = max(1.0, _inverse_deviation(one)) * max(1.0, weight.largest if weight is not None else 1.0)
    x = one.named("input", "self", "X")
    centred = 1.0 if x is None else 1.0 + x.largest * _inverse_deviation(one)
    return one.norm + grad.norm * summed * gain * centred


def _softmax(one: _Output) -> float:
    # An element is p = exp(-t) / sum. If t is rounded, p changes by at most t * p * eps, however large t is. The sum of squares of
    # t * p is less than the sum of the elements, which is the number of rows.
    return one.norm + (_moved(one) if one.moved else math.sqrt(max(0.0, one.digest.mean) * one.digest.size))


def _log_softmax(one: _Output) -> float:
    return one.norm + (_moved(one) if one.moved else math.sqrt(one.digest.size))


def _moved(one: _Output) -> float:
    return max((min(x.norm, _reach(x) * math.sqrt(x.size)) for x in one.floats()), default=0.0)


def _reach(x: TensorDigest) -> float:
    """Return the largest element; beside a mask of 1e9, on the logarithmic scale on which distances of such inputs are."""
    return x.largest if x.largest < _MASKING else math.asinh(x.largest)


def _exponential(one: _Output) -> float:
    # As of softmax, negative numbers are not ill-conditioned.
    found = one.floats()
    if one.moved:
        return one.norm * (1 + max((x.largest for x in found), default=0.0)) + _moved(one)
    most, least = max((x.max for x in found), default=0.0), min((x.min for x in found), default=0.0)
    return one.norm * (1 + max(0.0, most)) + math.sqrt(one.digest.size) * min(1.0, max(0.0, -least))


def _logarithm(one: _Output) -> float:
    return one.norm + (math.sqrt(one.digest.size) if one.moved else 0.0)


def _hyperbolic(one: _Output) -> float:
    return one.norm * (1 + max((x.largest for x in one.floats()), default=0.0))


def _gradient(one: _Output) -> float:
    """A gradient is linear in the incoming one."""
    found = one.floats()
    return one.norm + (4 * one.spread(found[0]) if found else 0.0)


def _loss(one: _Output) -> float:
    found = one.floats()
    size = 1 + sum(x.largest for x in found)
    return one.norm + size * size * math.sqrt(one.digest.size) * (math.sqrt(max((x.size for x in found), default=1)))


def _attention(one: _Output) -> float:
    query, key, value = (one.named(name) for name in ("query", "key", "value"))
    logits = query.largest * key.largest * shape_of(one.call.inputs[0].text)[-1] if query is not None and key is not None else 1.0
    grad = one.named("grad_out", "grad_output", "grad_out_")
    largest = max(1.0, value.largest) if value is not None else 1.0
    if grad is not None:
        return one.norm + grad.norm * largest * (1 + logits)
    return one.norm + (value.norm if value is not None else 0.0) * math.sqrt(1 + logits)


def _wave(one: _Output) -> float:
    return one.norm + math.sqrt(one.digest.size) * max(map(_reach, one.floats()), default=0.0)


#: (pattern of a packet's name without namespace, scale, whether the op is smooth: a small change of its inputs changes its outputs
#: in proportion). The first pattern that matches counts. Of all other ops, elements may jump.
_SCALES: Sequence[tuple[str, _Scale, bool]] = (
    (r"(addmm|addmv|addbmm|baddbmm|addr|_?linear|mm|bmm|mv|dot|vdot|matmul|einsum|_addmm_activation|bilinear)", _product, True),
    (r".*conv.*", _convolution, True),
    (r".*(scaled_dot_product|_attention).*", _attention, True),
    (r".*(lstm|gru|rnn).*backward", _gradient, True),
    (r".*(lstm|gru|rnn).*", _terms, True),
    (r".*(layer|batch|group|instance|rms)_?norm.*backward.*", _norm_backward, True),
    (r".*(layer|batch|group|instance|rms)_?norm.*", _norm_forward, True),
    (r"_?softmax", _softmax, True),
    (r"_?log_softmax", _log_softmax, True),
    (r".*embedding.*backward|index_add_?|scatter_add_?|index_put_?|_index_put_impl_?", _summed, True),
    (r".*(softmax|sigmoid|tanh|gelu|silu|mish|elu|softplus)_backward.*", _gradient, True),
    (r".*loss.*backward", _gradient, True),
    (r".*loss.*|binary_cross_entropy.*", _loss, True),
    (r".*backward.*", _gradient, False),
    (r"sum|nansum|cumsum|trace|logsumexp|.*norm|.*pool.*|cdist|.*fft.*", _summed, True),
    (r"mean|nanmean", _averaged, True),
    (r"var.*|std.*", _variance, True),
    (r"exp2?_?|expm1_?", _exponential, True),
    (r"(log|log2|log10|log1p)_?", _logarithm, True),
    (r"sinh|cosh", _hyperbolic, True),
    (r"sin_?|cos_?|erf|tanh_?|sigmoid_?|gelu_?|silu_?|mish_?|elu_?|softplus", _wave, True),
    (r"(_foreach_)?(add|sub|rsub|lerp|addcmul|addcdiv)_?|.*fused_.*", _terms, True),
    (r"(_foreach_)?(mul|neg|abs|square)_?|clone|copy_?|_to_copy|cat|stack|split.*|view.*|_unsafe_view|t|transpose.*", _own, True),
    (r"permute|reshape|expand|slice.*|select.*|unsqueeze.*|squeeze.*|detach|alias|relu_?|leaky_relu_?|constant_pad_nd", _own, True),
    (r"gather|index|embedding|index_select|repeat|flip|roll|amax|amin|max|min|maximum|minimum|clamp.*", _own, True),
    (r"native_dropout|masked_fill_?|where", _own, True),
)

# Ops with a pole at 0: the change of a result has no bound in the norms, but in the smallest element of these inputs.
_POLES: Sequence[tuple[str, Sequence[str]]] = (
    (r"(_foreach_)?div_?", ("other", "scalars")),
    (r"(_foreach_)?addcdiv_?", ("tensor2",)),
    (r"(_foreach_)?(reciprocal|rsqrt|sqrt|log|log2|log10|log1p|pow)_?|_?pdist_backward|_?cdist_backward|norm_backward", ()),
)
# Ops whose result has no bound that the digests show: a period, a pole elsewhere, or the condition number of a matrix.
_UNBOUNDED = re.compile(
    r"(fmod|remainder|frac|tan)_?|_?linalg_(?!vector_norm).*|cholesky.*|lu_.*|inverse|.*triangular_solve.*|geqrf|ormqr"
)
# Ops whose elements may jump by one.
_STEPS = re.compile(r"(_foreach_)?(floor|ceil|round|trunc|floor_divide)_?")
_SUMS = re.compile(r"(_foreach_)?(add|sub|rsub)_?")
_PRODUCTS = re.compile(r".*(mm|linear|matmul|conv|dot|bmm|attention|einsum).*")


@cache
def _row_of(packet: str) -> tuple[_Scale, bool]:
    name = packet.rpartition(".")[2]
    for pattern, scale, smooth in _SCALES:
        if re.fullmatch(pattern, name):
            return scale, smooth
    return _own, False


@cache
def _pole_of(packet: str) -> Sequence[str] | None:
    """Return the names of the inputs at whose zeros an op has a pole, none for all; None if it has no pole."""
    name = packet.rpartition(".")[2]
    return next((names for pattern, names in _POLES if re.fullmatch(pattern, name)), None)


def distance_of_values(one: Value, other: Value) -> float:
    """Return the distance of two tensors that have digests. Of integers, float64 may not show it, but hashes do."""
    assert one.digest is not None
    assert other.digest is not None
    found = distance(one.digest, other.digest)
    exact = found < 1 and dtype_of(one.text) == dtype_of(other.text) and not _is_inexact(one)
    return 1.0 if exact and one.digest.hash != other.digest.hash else found


def _relative(one: Value, other: Value) -> float:
    assert one.digest is not None
    assert other.digest is not None
    found = relative_distance(one.digest, other.digest)
    return found or distance_of_values(one, other) / max(one.digest.norm, 1.0)


def distance_of_inputs(one: RecordedCall, other: RecordedCall) -> float:
    """Return the largest distance of two inputs of the calls, relative to the norm; infinity if other arguments differ."""
    tensors = [[value for value in call.inputs if value.is_tensor] for call in (one, other)]
    found = 0.0
    for x, y in zip(*tensors, strict=False):
        if x.digest is None or y.digest is None:
            continue
        found = max(found, _relative(x, y))
    if one.packet == other.packet and [value.name for value in one.inputs] == [value.name for value in other.inputs]:
        for x, y in zip(one.inputs, other.inputs, strict=True):
            found = max(found, 0.0 if x.is_tensor or y.is_tensor else _distance_of_constants(x, y))
    return found


def _distance_of_constants(x: Value, y: Value) -> float:
    one, other = x.constant, y.constant
    if one == other or (one is None and other is None):  # texts name devices and layouts
        return 0.0
    if not (isinstance(one, float) and isinstance(other, float)):
        return math.inf
    if one != one and other != other:
        return 0.0
    return abs(one - other) / max(abs(one), abs(other)) if math.isfinite(one) and math.isfinite(other) else math.inf


def _tolerance_of(value: Value) -> Tolerance | None:
    dtype = dtype_of(value.text)
    return None if dtype is None else tolerance_of(dtype)


def _is_inexact(value: Value) -> bool:
    return _tolerance_of(value) is not None


def allowed_distance(call: RecordedCall, other: RecordedCall, index: int, drift: float, tf32: bool = False) -> float:
    """Return the distance that an output of a call may have from another run's.

    Args:
        call: the call.
        other: the other run's.
        index: the index of the output.
        drift: the relative distance of the inputs.
        tf32: whether one of the runs may have computed products in TF32.
    """
    output, beside = call.outputs[index], other.outputs[index]
    digest, second = output.digest, beside.digest
    assert digest is not None
    assert second is not None
    bound = max(filter(None, map(_tolerance_of, (output, beside))), key=lambda one: one.relative, default=None)
    scale, smooth = _row_of(call.packet)

    def size(moved: bool) -> float:
        return max(scale(_Output(call, digest, index, moved)), scale(_Output(other, second, index, moved)))

    root, name = math.sqrt(digest.size), call.packet.rpartition(".")[2]
    pole = _pole_of(call.packet)
    # Elements that jump, or that are magnified, do so by how far they are from a point, so what counts is the spread of the inputs.
    jumps = drift
    if drift and (bound is None or (pole is None and not smooth)):
        jumps = max(drift, _distance_by_spread(call, other))
    if drift and (jumps > AGREE or _UNBOUNDED.fullmatch(name)):
        return math.inf
    if bound is None:  # integers and bools are exact, unless the inputs differ
        return 0.0 if drift == 0 else digest.largest * (2 + math.sqrt(_DRIFT * math.sqrt(jumps)) * root)
    # The inputs may be in a coarser dtype than the output.
    rounding = max([bound.rounding, *(_rounding_of(value) for value in (*call.inputs, *other.inputs))])
    if tf32 and _PRODUCTS.fullmatch(name):
        rounding = max(rounding, _TF32)
    allowed = _of_comparer(bound, digest, second) + _ROUNDINGS * rounding * size(moved=False)
    if drift == 0:
        return allowed
    allowed += root if _STEPS.fullmatch(name) else 0.0
    if pole is not None:
        return allowed + _DRIFT * drift * size(moved=True) * _magnified(call, pole)
    return allowed + _DRIFT * (drift if smooth else math.sqrt(jumps)) * size(moved=True)


def beside_large(call: RecordedCall, other: RecordedCall, index: int, drift: float) -> tuple[float, float]:
    """Return the distance of an output on the logarithmic scale, and the allowed one. It shows errors beside large elements.

    Only ops that compute each element from a few of the inputs are judged: others add rounding errors of the large elements to all.
    """
    scale, smooth = _row_of(call.packet)
    exact_sum = drift == 0 and _SUMS.fullmatch(call.packet.rpartition(".")[2]) is not None
    x, y = call.outputs[index], other.outputs[index]
    if x.digest is None or y.digest is None or not (exact_sum or (scale is _own and smooth)):
        return 0.0, math.inf
    tolerances = filter(None, map(_tolerance_of, (x, y)))
    allowed = max((one.relative + one.absolute + _ROUNDINGS * one.rounding for one in tolerances), default=0.0)
    return scaled_distance(x.digest, y.digest), allowed + _DRIFT * drift


def _distance_by_spread(call: RecordedCall, other: RecordedCall) -> float:
    """Return the largest distance of two inputs, relative to the norm of what they differ from their mean."""
    found = 0.0
    for x, y in zip(call.inputs, other.inputs, strict=False):
        one = x.digest
        if one is not None and y.digest is not None and one.size > 1 and _is_inexact(x):
            spread = math.sqrt(max(0.0, one.norm * one.norm - one.size * one.mean * one.mean))
            off = distance(one, y.digest)
            found = max(found, off / spread if spread else math.inf) if off else found
    return found


def _of_comparer(tolerance: Tolerance, one: TensorDigest, other: TensorDigest) -> float:
    """Return the norm of the errors that `allowed_error` permits in each element."""
    norm, largest, root = max(one.norm, other.norm), max(one.largest, other.largest), math.sqrt(one.size)
    return tolerance.relative * norm + (tolerance.of_largest * largest + tolerance.absolute) * root


def _rounding_of(value: Value) -> float:
    tolerance = _tolerance_of(value) if value.digest is not None else None
    return tolerance.rounding if tolerance is not None else 0.0


def _magnified(call: RecordedCall, names: Sequence[str]) -> float:
    """Return by how much an op with a pole at 0 may magnify a distance of its inputs: their norm by their least element."""
    found = 1.0
    for value in call.inputs:
        digest = value.digest
        if digest is not None and digest.size and _is_inexact(value) and (not names or value.name in names):
            least = digest.min if digest.min > 0 else -digest.max
            found = max(found, digest.norm / least if least > 0 else math.inf)
    return found
