"""Kernels that test the conformance suite: broken ones, which differ from eager, and equivalents, which are right but not eager's.

from conformance.mutants import MUTANTS, EQUIVALENTS

mutant = MUTANTS[0]
backend = Backend("broken", core_aten(), kernels={mutant.op: mutant.kernel})
run_conformance(backend, ops=[mutant.op]).failures  # names mutant.op
"""

from __future__ import annotations

from conformance.mutants import (
    arithmetic,
    equivalents,
    indexing,
    memory,
    pointwise,
    products,
    random,
    reductions,
    stateful,
    unlike_eager,
    unusual,
)
from conformance.mutants.builder import EQUIVALENT, Mutant, Proof
from conformance.mutants.proof import differs_from_eager, fault_shows
from conformance.mutants.smoke_calls import USUAL_CALLS

__all__ = [
    "FAMILIES",
    "MUTANTS",
    "USUAL_CALLS",
    "EQUIVALENT",
    "EQUIVALENTS",
    "Mutant",
    "Proof",
    "differs_from_eager",
    "fault_shows",
]

#: The kernels that are right, but not eager's.
EQUIVALENTS: tuple[Mutant, ...] = (*equivalents.EQUIVALENTS, *unlike_eager.EQUIVALENTS)

#: The broken kernels by family. Each family is a module.
FAMILIES: dict[str, tuple[Mutant, ...]] = {
    "pointwise": pointwise.MUTANTS,
    "arithmetic": arithmetic.MUTANTS,
    "reductions": reductions.MUTANTS,
    "products": products.MUTANTS,
    "indexing": indexing.MUTANTS,
    "memory": memory.MUTANTS,
    "random": random.MUTANTS,
    "stateful": stateful.MUTANTS,
    "unusual": unusual.MUTANTS,
}

#: All broken kernels. The suite must report each, with its op.
MUTANTS: tuple[Mutant, ...] = tuple(mutant for family in FAMILIES.values() for mutant in family)
