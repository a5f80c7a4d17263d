"""Our own rules, a folder per family of ops; this module is their table.

Before the rule of a family go those of `lengths`, for the usual calls of an op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.decomps import lengths, repairs
from eagerdecomp.decomps.derived import assertions, foreach, fsdp_copies, inplace_and_out
from eagerdecomp.decomps.image import grid_sample, pooling, upsample, upsample_antialias
from eagerdecomp.decomps.last_resort import prims_indexing, prims_matmul, prims_pooling, prims_random, prims_sorting, small_sets
from eagerdecomp.decomps.linalg import cholesky_qr, eig, eigh_svd, ldl, lu, matrix_exp
from eagerdecomp.decomps.matmul import addmm, attention, convolution, fft, recurrent, rnn_cells, scaled_mm, transformer_encoder
from eagerdecomp.decomps.pointwise import activations, bits, elementwise, scalar_first
from eagerdecomp.decomps.random import distributions, rejection_sampling, reparameterized_grads, sampling
from eagerdecomp.decomps.reduce import distances, histograms, reductions, segment_reduce, softmax, sorting
from eagerdecomp.decomps.shape import embedding, factories, indexing, padded_batches, padding, sparse_indices, views
from eagerdecomp.decomps.special import bessel, error_functions, incomplete_gamma, lgamma, orthogonal_polynomials, zeta
from eagerdecomp.decomps.training import (
    classification_losses,
    ctc,
    fake_quantize,
    fused_optimizers,
    normalization,
    regression_losses,
)
from eagerdecomp.eager.checks.table import refusing
from eagerdecomp.eager.determinism import warns
from eagerdecomp.eager.scalars import HELD, holding
from eagerdecomp.rules.rule import Call, Rule, index_rules

__all__ = ["FAMILIES", "ON_PRIMS", "our_rules"]

#: Folder -> the rules of its modules.
FAMILIES: Mapping[str, tuple[Rule, ...]] = {
    "pointwise": (
        *activations.RULES,
        *bits.RULES,
        *elementwise.RULES,
        *scalar_first.RULES,
    ),
    "special": (
        *bessel.RULES,
        *error_functions.RULES,
        *incomplete_gamma.RULES,
        *lgamma.RULES,
        *orthogonal_polynomials.RULES,
        *zeta.RULES,
    ),
    "shape": (
        *embedding.RULES,
        *factories.RULES,
        *indexing.RULES,
        *padded_batches.RULES,
        *padding.RULES,
        *sparse_indices.RULES,
        *views.RULES,
    ),
    "reduce": (
        *distances.RULES,
        *histograms.RULES,
        *reductions.RULES,
        *segment_reduce.RULES,
        *softmax.RULES,
        *sorting.RULES,
    ),
    "matmul": (
        *addmm.RULES,
        *attention.RULES,
        *convolution.RULES,
        *fft.RULES,
        *recurrent.RULES,
        *rnn_cells.RULES,
        *scaled_mm.RULES,
        *transformer_encoder.RULES,
    ),
    "linalg": (
        *cholesky_qr.RULES,
        *eig.RULES,
        *eigh_svd.RULES,
        *ldl.RULES,
        *lu.RULES,
        *matrix_exp.RULES,
    ),
    "image": (
        *grid_sample.RULES,
        *pooling.RULES,
        *upsample.RULES,
        *upsample_antialias.RULES,
    ),
    "random": (
        *distributions.RULES,
        *rejection_sampling.RULES,
        *reparameterized_grads.RULES,
        *sampling.RULES,
    ),
    "training": (
        *classification_losses.RULES,
        *ctc.RULES,
        *fake_quantize.RULES,
        *fused_optimizers.RULES,
        *normalization.RULES,
        *regression_losses.RULES,
    ),
    "derived": (*assertions.RULES,),
    "repairs": repairs.RULES,
}

#: Rules for sets that hold prims, behind all others of an op.
ON_PRIMS: tuple[Rule, ...] = (
    *prims_matmul.RULES,
    *prims_indexing.RULES,
    *prims_sorting.RULES,
    *prims_pooling.RULES,
    *prims_random.RULES,
)


@functools.cache
def _by_op() -> Mapping[OpOverload, Rule]:
    return index_rules(_refusing(rule) for rules in FAMILIES.values() for rule in rules)


@functools.cache
def _usual() -> Mapping[OpOverload, Rule]:
    """Linked rules of usual calls, which leave the others, or what is left to do, to the rule of a family or to torch's."""
    return index_rules((*lengths.RULES, *segment_reduce.CHECKED, *sorting.CHECKED, *elementwise.REAL))


@functools.cache
def _on_prims() -> Mapping[OpOverload, Rule]:
    return index_rules(_refusing(rule) for rule in ON_PRIMS)


@functools.cache
def _on_small_sets() -> Mapping[OpOverload, Rule]:
    return index_rules(_refusing(rule) for rule in small_sets.RULES)


def _refusing(rule: Rule) -> Rule:
    name, fn = str(rule.op), rule.fn
    if not rule.linked:
        fn = refusing(name, fn)
    elif name in HELD:
        fn = _linked_holding(name, fn)
    return rule if fn is rule.fn else replace(rule, fn=fn, effects=rule.effects or warns(name))


def _linked_holding(name: str, link: Callable[[Call], Callable[..., Any]]) -> Callable[[Call], Callable[..., Any]]:
    return lambda call: holding(name, link(call))


def our_rules(op: OpOverload) -> Iterator[Rule]:
    """The library's rules for an op: those written by hand, one that the schema gives (foreach, in-place and ``out=`` ops), and
    those of the last resort: one for sets that hold prims, whose source is ``prims``, and one for sets that lack Core ops, whose
    source is ``small``."""
    for table in (_usual(), _by_op()):
        rule = table.get(op)
        if rule is not None:
            yield rule
    yield from foreach.rules_for(op)
    yield from inplace_and_out.rules_for(op)
    yield from fsdp_copies.rules_for(op)
    on_prims = _on_prims().get(op)
    if on_prims is not None:
        yield on_prims
    small = _on_small_sets().get(op)
    if small is not None:
        yield small
