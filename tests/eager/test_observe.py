"""Copies of a call's arguments, and the results and effects of a call."""

from __future__ import annotations

import torch

from eagerdecomp.eager.observe import copied, observe

aten = torch.ops.aten


def test_copies_have_the_same_values_strides_and_aliasing() -> None:
    base = torch.arange(24.0)
    x, y, z = base[4:16].view(3, 4).t(), base[:12], torch.randn(2, 1).expand(2, 3)
    (cx, cy, cz, again), named = copied(aten.cat.default, [x, y, z, x], {"n": [x, 2]})
    for one, copy in ((x, cx), (y, cy), (z, cz)):
        assert torch.equal(one, copy)
        assert one.stride() == copy.stride()
        assert one.untyped_storage().data_ptr() != copy.untyped_storage().data_ptr()
    assert again is cx
    assert named["n"][0] is cx
    cy.zero_()
    assert torch.equal(cx, torch.where(x < 12, 0.0, x)), "what shares memory does not share it in the copies"


def test_conj_and_neg_bits_are_copied_as_bits() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    (conj, neg), _ = copied(aten.mul.Tensor, [x.conj(), x.conj().imag], {})
    assert conj.is_conj()
    assert neg.is_neg()
    assert torch.equal(conj, x.conj())
    assert torch.equal(neg, x.conj().imag)


def test_effects_include_identity_views_and_offsets() -> None:
    x = torch.arange(6.0)
    _, seen = observe(lambda x: [x, x[2:], x + 1], [x], {})
    assert list(seen.same) == [0, -1, -1]
    assert list(seen.shares) == [((0, 0),), ((0, 8),), ()]


def test_copies_on_the_cpu_are_of_all_devices_but_meta() -> None:
    class There(torch.Generator):
        device = torch.device("cuda")

    own = torch.Generator()
    given = [torch.device("cuda"), torch.device("meta"), There(), own, torch.ones(2, device="meta")]
    (cuda, meta, generator, same, tensor), _ = copied(aten.exp.default, given, {}, home=True)
    assert (cuda, meta) == (torch.device("cpu"), torch.device("meta"))
    assert (generator.device.type, tensor.device.type) == ("cpu", "meta")
    assert (same is not own, same.initial_seed()) == (True, own.initial_seed())
