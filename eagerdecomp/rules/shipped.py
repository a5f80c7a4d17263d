"""Make rules of torch's own decompositions: two decomposition tables, composite kernels and composite-explicit kernels."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import torch

from eagerdecomp._torch.decomp_tables import core_entry, full_table, without_disabling
from eagerdecomp._torch.ops import OpOverload, call_at_key, has_kernel
from eagerdecomp.eager.layouts import layout_of
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.eager.scalars import holding
from eagerdecomp.eager.unsupported_layouts import of_plain_tensors
from eagerdecomp.ops.passthrough import TORCH_NAMESPACES
from eagerdecomp.ops.schema import facts_of, functional_variant, is_composite
from eagerdecomp.ops.shipped_data import nearest_of, shipped_text
from eagerdecomp.rules.restride import with_eager_strides
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.shipped_faults import unused_entries

__all__ = ["COMPOSITIONS", "EVERY", "compositions", "is_made_of_ops", "shipped_rules"]

aten = torch.ops.aten

#: The name of the file in ``data`` that says which composite kernels compute only by ops: in `EVERY` release that it has, and
#: beside these in each one.
COMPOSITIONS, EVERY = "compositions.json", "every release"


def _fill(self: torch.Tensor, value: Any) -> Any:
    """Decompose `fill` to `prims.fill`. Only torch's reference does so, and the reference is in no table.

    Convert the value for bool tensors, because `prims.fill` rejects scalars that eager casts to the tensor's dtype.
    """
    return torch.ops.prims.fill.default(self, bool(value) if self.dtype is torch.bool else value)


def _as_batch_norm(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Restrict torch's decomposition of layer norm, which calls batch norm, to calls for which it returns eager's result.

    Batch norm differs from layer norm as follows: with `eps` 0, the inverse of a standard deviation of 0 is 0; the statistics of no
    rows are float32; float16 and bfloat16 are rounded before scaling; the strides of the parameters decide the memory format.
    """

    def run(input: torch.Tensor, normalized_shape: Any, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> Any:
        params = [one for one in (weight, bias) if one is not None]
        rounded_first = bool(params) and input.dtype in HALF
        if not eps or not input.numel() or rounded_first or not all(one.is_contiguous() for one in params):
            return NotImplemented
        return kernel(input, normalized_shape, weight, bias, eps)

    return run


def shipped_rules(op: OpOverload) -> Iterator[Rule]:
    """Yield torch's own rules for an op, the most reliable first.

    Composite kernels come first, because eager runs them too. Then follow the tables, then composite-explicit kernels, which work
    on any backend but often take more steps. In-place and ``out=`` ops get only composite kernels here if
    `decomps.derived` derives a rule from the functional variant: table entries accept calls that eager rejects, and some
    composite-explicit kernels (`aten.mode.values`) write to `out` without calling an op.
    """
    composed = [rule for rule in compositions(op) if is_made_of_ops(str(op), rule.source)]
    yield from (rule for rule in composed if rule.source == "composite")
    facts = facts_of(op)
    name = facts.name
    if not (facts.is_inplace or facts.is_out) and name not in unused_entries():
        core = core_entry(op)
        if core is not None:
            yield _table_rule(op, core, "core")
        entry = full_table().get(op)
        if entry is not None and entry is not core:
            yield _table_rule(op, entry, "table")
        if op is aten.fill.Scalar:
            yield _table_rule(op, _fill, "refs")
    yield from (rule for rule in composed if rule.source == "explicit")


def compositions(op: OpOverload) -> Iterator[Rule]:
    """Yield the op's composite kernels as rules, whether or not they do all their work by ops."""
    # The body of another library's op may read memory, globals or a clock without calling an op, so it runs at each call.
    of_others = op.namespace not in TORCH_NAMESPACES
    if is_composite(op):
        kernel = call_at_key(op, "CompositeImplicitAutograd")
        yield Rule(op, kernel, "composite", f"{op} (its own body)" if of_others else f"{op} (C++ composite)", effects=of_others)
    if has_kernel(op, "CompositeExplicitAutograd") and functional_variant(op) is None:
        name = facts_of(op).name
        kernel = holding(name, of_plain_tensors(op, call_at_key(op, "CompositeExplicitAutograd")))
        if op is aten.native_layer_norm.default:
            kernel = _as_batch_norm(kernel)
        where = f"{name} (its own body)" if of_others else f"{name} (C++ composite-explicit kernel)"
        yield Rule(op, kernel, "explicit", where, effects=of_others)


def is_made_of_ops(op: str, source: str) -> bool:
    """Return whether a composition is known to compute only by ops: ``tools/prove_compositions.py`` has found out.

    Torch's composite-explicit kernels are not used unless they are listed. Composite-implicit kernels are compositions by
    definition; those with hidden work are listed. Bodies of other libraries' ops are checked when they run.

    Args:
        op: the overload's name.
        source: ``explicit`` or ``composite``, as in `Rule.source`.
    """
    if op.partition(".")[0] not in TORCH_NAMESPACES:
        return True
    made_of_ops, hidden_work = _proved()
    return op in made_of_ops if source == "explicit" else op not in hidden_work


@functools.cache
def _proved() -> tuple[frozenset[str], frozenset[str]]:
    """Return the composite-explicit kernels that are made of ops, and the composite-implicit kernels that are not."""
    lists = json.loads(shipped_text(COMPOSITIONS) or "")
    release = nearest_of([one for one in lists["made_of_ops"] if one != EVERY])
    made_of_ops, hidden_work = (frozenset(lists[name][EVERY] + lists[name][release]) for name in ("made_of_ops", "hidden_work"))
    return made_of_ops, hidden_work


def _with_alpha(entry: Callable[..., Any]) -> Callable[..., Any]:
    """Accept `alpha` as a positional argument, as the op does; torch's reference takes it only by keyword."""

    @functools.wraps(entry)
    def run(self: Any, other: Any, alpha: Any = 1) -> Any:
        return entry(self, other, alpha=alpha)

    return run


def _table_rule(op: OpOverload, entry: Callable[..., Any], source: str) -> Rule:
    where = f"{getattr(entry, '__module__', '?')}.{getattr(entry, '__qualname__', getattr(entry, '__name__', '?'))}"
    name = facts_of(op).name
    entry = without_disabling(entry)
    if op in (aten.add.Scalar, aten.sub.Scalar):
        entry = _with_alpha(entry)
    layout = layout_of(op)
    fn = holding(name, entry if layout is None else with_eager_strides(entry, layout))
    return Rule(op, fn, source, where)
