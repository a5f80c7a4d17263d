"""Our own rules, a family per file; this module is the table of families, in the order a reader meets them.

Before the rule of a family go those of `lengths`, for the usual calls of an op.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from eagerdecomp._torch import OpOverload
from eagerdecomp.decomps import (
    activations,
    antialias,
    attention,
    bessel,
    bits,
    cells,
    class_losses,
    convolution,
    ctc,
    distances,
    distribution_gradients,
    distributions,
    elementwise,
    embedding,
    encoder,
    error_functions,
    factories,
    factorizations,
    foreach,
    fourier,
    gammas,
    grids,
    histograms,
    indexing,
    lengths,
    linalg,
    losses,
    matrix_functions,
    mutation,
    normalization,
    numbers_first,
    optimizers,
    padding,
    polynomials,
    pooling,
    products,
    quantization,
    ragged,
    random,
    recurrent,
    reductions,
    repairs,
    resize,
    sampling,
    segments,
    softmaxes,
    sorting,
    special,
    spectra,
    views,
)
from eagerdecomp.refusals import refusing
from eagerdecomp.rules import Rule, index_rules

__all__ = ["FAMILIES", "our_rules"]

FAMILIES: tuple[tuple[str, tuple[Rule, ...]], ...] = (
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
    ("bessel", bessel.RULES),
    ("bits", bits.RULES),
    ("histograms", histograms.RULES),
    ("polynomials", polynomials.RULES),
    ("error_functions", error_functions.RULES),
    ("indexing", indexing.RULES),
    ("views", views.RULES),
    ("fourier", fourier.RULES),
    ("linalg", linalg.RULES),
    ("factorizations", factorizations.RULES),
    ("matrix_functions", matrix_functions.RULES),
    ("spectra", spectra.RULES),
    ("recurrent", recurrent.RULES),
    ("cells", cells.RULES),
    ("pooling", pooling.RULES),
    ("products", products.RULES),
    ("padding", padding.RULES),
    ("resize", resize.RULES),
    ("antialias", antialias.RULES),
    ("grids", grids.RULES),
    ("random", random.RULES),
    ("sampling", sampling.RULES),
    ("distributions", distributions.RULES),
    ("distribution_gradients", distribution_gradients.RULES),
    ("factories", factories.RULES),
    ("foreach", foreach.RULES),
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


@functools.cache
def _by_op() -> Mapping[OpOverload, Rule]:
    return index_rules(_refusing(rule) for _, rules in FAMILIES for rule in rules)


@functools.cache
def _usual() -> Mapping[OpOverload, Rule]:
    """Linked rules of usual calls, which leave the others to the rule of a family or to torch's."""
    return index_rules(lengths.RULES)


def _refusing(rule: Rule) -> Rule:
    fn = rule.fn if rule.linked else refusing(str(rule.op), rule.fn)
    return rule if fn is rule.fn else replace(rule, fn=fn)


def our_rules(op: OpOverload) -> Iterator[Rule]:
    """The library's rules for an op: those written by hand, and one that the schema gives (in-place and ``out=`` ops)."""
    for table in (_usual(), _by_op()):
        rule = table.get(op)
        if rule is not None:
            yield rule
    yield from mutation.rules_for(op)
