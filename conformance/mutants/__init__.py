"""Kernels to judge the suite by: broken ones, each proven to differ from eager, and equivalents, which are right in another way.

from conformance.mutants import MUTANTS, EQUIVALENTS

mutant = MUTANTS[0]
backend = Backend("broken", core_aten(), kernels={mutant.op: mutant.kernel})
run_conformance(backend, ops=[mutant.op]).failures  # names mutant.op
"""

from __future__ import annotations

from conformance.mutants import arithmetic, indexing, memory, pointwise, products, random, reductions, stateful
from conformance.mutants.builder import EQUIVALENT, Mutant, Proof
from conformance.mutants.equivalents import EQUIVALENTS
from conformance.mutants.proof import differs, shown
from conformance.mutants.smoke_calls import PLAIN

__all__ = ["FAMILIES", "MUTANTS", "PLAIN", "EQUIVALENT", "EQUIVALENTS", "Mutant", "Proof", "differs", "shown"]

#: The broken kernels by family, a file each.
FAMILIES: dict[str, tuple[Mutant, ...]] = {
    "pointwise": pointwise.MUTANTS,
    "arithmetic": arithmetic.MUTANTS,
    "reductions": reductions.MUTANTS,
    "products": products.MUTANTS,
    "indexing": indexing.MUTANTS,
    "memory": memory.MUTANTS,
    "random": random.MUTANTS,
    "stateful": stateful.MUTANTS,
}

#: Every broken kernel. The suite must find each and name its op.
MUTANTS: tuple[Mutant, ...] = tuple(mutant for family in FAMILIES.values() for mutant in family)
