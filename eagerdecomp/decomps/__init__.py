"""Our own rules, a family per file; this module is the table of families, in the order a reader meets them.

Before the rule of a family go those of `lengths`, for the usual calls of an op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.decomps import lengths, repairs
from eagerdecomp.decomps.derived import assertions, foreach
from eagerdecomp.decomps.derived import fsdp_copies as sharding
from eagerdecomp.decomps.derived import inplace_and_out as mutation
from eagerdecomp.decomps.image import grid_sample as grids
from eagerdecomp.decomps.image import pooling
from eagerdecomp.decomps.image import upsample as resize
from eagerdecomp.decomps.image import upsample_antialias as antialias
from eagerdecomp.decomps.last_resort import prims_indexing as prim_places
from eagerdecomp.decomps.last_resort import prims_matmul as prim_products
from eagerdecomp.decomps.last_resort import prims_pooling as prim_windows
from eagerdecomp.decomps.last_resort import prims_random as prim_making
from eagerdecomp.decomps.last_resort import prims_sorting as prim_orders
from eagerdecomp.decomps.last_resort import small_sets as few_kernels
from eagerdecomp.decomps.linalg import cholesky_qr as factorizations
from eagerdecomp.decomps.linalg import eig as eigenvalues
from eagerdecomp.decomps.linalg import eigh_svd as spectra
from eagerdecomp.decomps.linalg import ldl as indefinite
from eagerdecomp.decomps.linalg import lu as linalg
from eagerdecomp.decomps.linalg import matrix_exp as matrix_functions
from eagerdecomp.decomps.matmul import addmm as products
from eagerdecomp.decomps.matmul import attention, convolution, recurrent
from eagerdecomp.decomps.matmul import fft as fourier
from eagerdecomp.decomps.matmul import rnn_cells as cells
from eagerdecomp.decomps.matmul import scaled_mm as scaled_products
from eagerdecomp.decomps.matmul import transformer_encoder as encoder
from eagerdecomp.decomps.pointwise import activations, bits, elementwise
from eagerdecomp.decomps.pointwise import scalar_first as numbers_first
from eagerdecomp.decomps.random import random, sampling
from eagerdecomp.decomps.random import rejection_sampling as distributions
from eagerdecomp.decomps.random import reparameterized_grads as distribution_gradients
from eagerdecomp.decomps.reduce import distances, histograms, reductions, sorting
from eagerdecomp.decomps.reduce import segment_reduce as segments
from eagerdecomp.decomps.reduce import softmax as softmaxes
from eagerdecomp.decomps.shape import embedding, factories, indexing, padding, sparse_indices, views
from eagerdecomp.decomps.shape import padded_batches as ragged
from eagerdecomp.decomps.special import bessel, error_functions, incomplete_gamma
from eagerdecomp.decomps.special import lgamma as special
from eagerdecomp.decomps.special import orthogonal_polynomials as polynomials
from eagerdecomp.decomps.special import zeta as gammas
from eagerdecomp.decomps.training import classification_losses as class_losses
from eagerdecomp.decomps.training import ctc, normalization
from eagerdecomp.decomps.training import fake_quantize as quantization
from eagerdecomp.decomps.training import fused_optimizers as optimizers
from eagerdecomp.decomps.training import regression_losses as losses
from eagerdecomp.eager.checks.table import refusing
from eagerdecomp.eager.determinism import warns
from eagerdecomp.eager.scalars import HELD, holding
from eagerdecomp.rules.rule import Call, Rule, index_rules

__all__ = ["FAMILIES", "ON_PRIMS", "our_rules"]

FAMILIES: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("assertions", assertions.RULES),
    ("attention", attention.RULES),
    ("convolution", convolution.RULES),
    ("distances", distances.RULES),
    ("encoder", encoder.RULES),
    ("ragged", ragged.RULES),
    ("elementwise", elementwise.RULES),
    ("reductions", reductions.RULES),
    ("sorting", sorting.RULES),
    ("segments", segments.RULES),
    ("special", special.RULES),
    ("gammas", gammas.RULES),
    ("incomplete_gamma", incomplete_gamma.RULES),
    ("bessel", bessel.RULES),
    ("bits", bits.RULES),
    ("histograms", histograms.RULES),
    ("polynomials", polynomials.RULES),
    ("error_functions", error_functions.RULES),
    ("indexing", indexing.RULES),
    ("sparse_indices", sparse_indices.RULES),
    ("views", views.RULES),
    ("fourier", fourier.RULES),
    ("linalg", linalg.RULES),
    ("factorizations", factorizations.RULES),
    ("indefinite", indefinite.RULES),
    ("eigenvalues", eigenvalues.RULES),
    ("matrix_functions", matrix_functions.RULES),
    ("spectra", spectra.RULES),
    ("recurrent", recurrent.RULES),
    ("cells", cells.RULES),
    ("pooling", pooling.RULES),
    ("products", products.RULES),
    ("scaled_products", scaled_products.RULES),
    ("padding", padding.RULES),
    ("resize", resize.RULES),
    ("antialias", antialias.RULES),
    ("grids", grids.RULES),
    ("random", random.RULES),
    ("sampling", sampling.RULES),
    ("distributions", distributions.RULES),
    ("distribution_gradients", distribution_gradients.RULES),
    ("factories", factories.RULES),
    ("activations", activations.RULES),
    ("softmaxes", softmaxes.RULES),
    ("normalization", normalization.RULES),
    ("numbers_first", numbers_first.RULES),
    ("optimizers", optimizers.RULES),
    ("quantization", quantization.RULES),
    ("ctc", ctc.RULES),
    ("embedding", embedding.RULES),
    ("losses", losses.RULES),
    ("class_losses", class_losses.RULES),
    ("repairs", repairs.RULES),
)

#: Rules for sets that hold prims, behind all others of an op.
ON_PRIMS: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("prim_products", prim_products.RULES),
    ("prim_places", prim_places.RULES),
    ("prim_orders", prim_orders.RULES),
    ("prim_windows", prim_windows.RULES),
    ("prim_making", prim_making.RULES),
)


@functools.cache
def _by_op() -> Mapping[OpOverload, Rule]:
    return index_rules(_refusing(rule) for _, rules in FAMILIES for rule in rules)


@functools.cache
def _usual() -> Mapping[OpOverload, Rule]:
    """Linked rules of usual calls, which leave the others, or what is left to do, to the rule of a family or to torch's."""
    return index_rules((*lengths.RULES, *segments.CHECKED, *sorting.CHECKED, *elementwise.REAL))


@functools.cache
def _on_prims() -> Mapping[OpOverload, Rule]:
    return index_rules(_refusing(rule) for _, rules in ON_PRIMS for rule in rules)


@functools.cache
def _on_small_sets() -> Mapping[OpOverload, Rule]:
    return index_rules(_refusing(rule) for rule in few_kernels.RULES)


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
    yield from mutation.rules_for(op)
    yield from sharding.rules_for(op)
    on_prims = _on_prims().get(op)
    if on_prims is not None:
        yield on_prims
    small = _on_small_sets().get(op)
    if small is not None:
        yield small
