"""Generative and contrastive models, reinforcement learning, and torch's own transformer, in plain torch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, MultivariateNormal, Normal, kl_divergence
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from conformance.models.entry import Entry, Subject, tensors_of
from conformance.models.plain import plain_entry

__all__ = ["ENTRIES"]


# -- diffusion ----------------------------------------------------------------------------------------------------


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.skip = nn.Linear(time, 2 * outputs), nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, 1)
        hidden = self.norm2(self.conv1(F.silu(self.norm1(x)))) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(hidden))


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(4, width)
        self.qkv, self.out = nn.Conv1d(width, 3 * width, 1), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        flat = self.norm(x).flatten(2)
        q, k, v = (one.unflatten(1, (self.heads, -1)).transpose(2, 3) for one in self.qkv(flat).chunk(3, 1))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).flatten(1, 2)
        return x + self.out(mixed).view_as(x)


class DiffusionUNet(nn.Module):
    """U-Net with timestep embedding, group norm, and attention at its lowest level."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.first, self.down = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.before, self.middle, self.after = (_Residual(n, width, width) for n in (width, width, 2 * width))
        self.attention, self.last = _Attention(width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        phases = torch.exp(-math.log(1000) * torch.arange(8) / 8) * step[:, None]
        time = self.time(torch.cat([phases.cos(), phases.sin()], 1))
        high = self.before(self.first(x), time)
        low = self.attention(self.middle(self.down(high), time))
        up = F.interpolate(low, scale_factor=2, mode="nearest")
        return self.last(self.after(torch.cat([up, high], 1), time))


def _denoise(model: nn.Module, batch: Any) -> Tensor:
    (image, step), noise = batch
    signal = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)[step][:, None, None, None]
    return F.mse_loss(model(signal.sqrt() * image + (1 - signal).sqrt() * noise, step), noise)


# -- autoencoders -------------------------------------------------------------------------------------------------


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = (
            nn.Sequential(nn.Linear(12, 8), nn.ELU()),
            nn.Sequential(nn.Linear(4, 8), nn.Mish(), nn.Linear(8, 12)),
        )
        self.mean, self.spread = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Normal]:
        hidden = self.encoder(x)
        latent = Normal(self.mean(hidden), F.softplus(self.spread(hidden)))
        return self.decoder(latent.mean + latent.stddev * noise), latent


def _elbo(model: nn.Module, batch: Any) -> Tensor:
    decoded, latent = model(*batch[0])
    reconstruction = F.binary_cross_entropy_with_logits(decoded, batch[0][0].sigmoid(), reduction="sum")
    return (reconstruction + kl_divergence(latent, Normal(0.0, 1.0)).sum()) / len(decoded)


class VectorQuantiser(nn.Module):
    """VQ-VAE: nearest codes with a straight-through gradient; the codes are buffers, updated by moving averages."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(2, 4, 3, padding=1), nn.ConvTranspose1d(4, 2, 3, padding=1)
        self.register_buffer("codes", torch.randn(6, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        latent = self.encoder(x).transpose(1, 2)
        nearest = (latent[:, :, None] - self.codes).square().sum(-1).argmin(-1)
        if self.training:
            with torch.no_grad():
                chosen = F.one_hot(nearest.flatten(), 6).to(x.dtype)
                self.codes.mul_(0.9).add_(chosen.T @ latent.flatten(0, 1), alpha=0.1)
        quantised = F.embedding(nearest, self.codes)
        through = latent + (quantised - latent).detach()
        return self.decoder(through.transpose(1, 2)), latent, quantised


def _quantiser_loss(model: nn.Module, batch: Any) -> Tensor:
    decoded, latent, quantised = model(*batch[0])
    return F.smooth_l1_loss(decoded, batch[0][0]) + 0.25 * F.mse_loss(latent, quantised.detach())


class Coupling(nn.Module):
    """Normalizing flow (RealNVP): coupling layers with an orthogonal matrix after each, and the log density."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4)) for _ in range(2))
        self.mix = nn.Parameter(torch.linalg.qr(torch.randn(4, 4))[0].contiguous())

    def forward(self, x: Tensor) -> Tensor:
        volume = torch.zeros(len(x), dtype=x.dtype)
        for net in self.nets:
            same, changed = x.chunk(2, 1)
            scale, shift = net(same).chunk(2, 1)
            x = torch.cat([changed * scale.tanh().exp() + shift, same], 1) @ self.mix
            volume = volume + scale.tanh().sum(1) + torch.linalg.slogdet(self.mix)[1]
        return Independent(Normal(torch.zeros(4), torch.ones(4)), 1).log_prob(x) + volume


class NeuralODE(nn.Module):
    """Neural ODE: a learned vector field, integrated by the Runge-Kutta method."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 2))

    def forward(self, x: Tensor) -> Tensor:
        step = 0.1
        for number in range(4):
            k1 = self._rate(x, number * step)
            k2 = self._rate(x + step / 2 * k1, (number + 0.5) * step)
            k3 = self._rate(x + step / 2 * k2, (number + 0.5) * step)
            k4 = self._rate(x + step * k3, (number + 1) * step)
            x = x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x

    def _rate(self, x: Tensor, time: float) -> Tensor:
        return self.field(torch.cat([x, x.new_full((len(x), 1), time)], 1))


class HamiltonianNetwork(nn.Module):
    """Hamiltonian network: its output is the gradient of a learned energy, so training computes second derivatives."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            slope = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]
        momentum, force = slope.chunk(2, 1)
        return torch.cat([force, -momentum], 1)


# -- adversarial networks -----------------------------------------------------------------------------------------


class GAN(nn.Module):
    def __init__(self, spectral: bool) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(4, 8, 4),
            nn.BatchNorm2d(8),
            nn.ReLU(True),
            nn.ConvTranspose2d(8, 3, 4, stride=2, padding=1),
            nn.Tanh(),
        )
        layers = (nn.Conv2d(3, 8, 4, stride=2, padding=1), nn.Conv2d(8, 8, 4))
        first, second = (parametrizations.spectral_norm(one) if spectral else one for one in layers)
        self.critic = nn.Sequential(first, nn.LeakyReLU(0.2), second, nn.Flatten(), nn.Linear(8, 1))

    def forward(self, noise: Tensor) -> Tensor:
        return self.critic(self.generator(noise))


def _train_adversarially(subject: Subject, critic_loss: Any) -> list[Tensor]:
    """Run two training steps of the critic and of the generator, in turn."""
    model: Any = subject.model
    (noise,), images, mixed = subject.batch
    of_critic, of_generator = (torch.optim.RMSprop(one.parameters(), lr=1e-3, eps=1e-3) for one in (model.critic, model.generator))
    losses = []
    for _ in range(2):
        of_critic.zero_grad()
        loss = critic_loss(model, noise, images, mixed)
        loss.backward()
        of_critic.step()
        of_generator.zero_grad()
        generator_loss = F.softplus(-model(noise)).mean()
        generator_loss.backward()
        of_generator.step()
        losses += [loss.detach(), generator_loss.detach()]
    return losses


def _hinge(model: Any, noise: Tensor, images: Tensor, mixed: Tensor) -> Tensor:
    return F.relu(1 - model.critic(images)).mean() + F.relu(1 + model.critic(model.generator(noise).detach())).mean()


def _gradient_penalty(model: Any, noise: Tensor, images: Tensor, mixed: Tensor) -> Tensor:
    """Return the Wasserstein loss with a gradient penalty, which needs second derivatives."""
    fake = model.generator(noise).detach()
    between = torch.lerp(images, fake, mixed).requires_grad_()
    slope = torch.autograd.grad(model.critic(between).sum(), between, create_graph=True)[0]
    return model.critic(fake).mean() - model.critic(images).mean() + 10 * (slope.flatten(1).norm(dim=1) - 1).square().mean()


def _gan_entry(name: str, spectral: bool, loss: Any) -> Entry:
    def make() -> Subject:
        batch = ((torch.randn(4, 4, 1, 1),), torch.rand(4, 3, 8, 8), torch.rand(4, 1, 1, 1))
        return Subject(
            GAN(spectral), batch, lambda model, batch: model(*batch[0]), steps=lambda subject: _train_adversarially(subject, loss)
        )

    return Entry(name, make)


# -- contrastive and reinforcement learning ------------------------------------------------------------------------


class TwoTowers(nn.Module):
    """Two encoders with CLIP's symmetric contrastive loss."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 8), nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.LazyLinear(8))
        self.right(torch.zeros(1, 3, dtype=torch.long))
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        one, other = F.normalize(self.left(left), dim=-1), F.normalize(self.right(right), dim=-1)
        return self.temperature.exp() * one @ other.T


def _contrastive_loss(model: nn.Module, batch: Any) -> Tensor:
    scores = model(*batch[0])
    match = torch.arange(len(scores))
    return (F.cross_entropy(scores, match) + F.cross_entropy(scores.T, match)) / 2


class Triplets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Hardswish(), nn.Linear(8, 4))

    def forward(self, *three: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.net(one) for one in three)


def _triplet_loss(model: nn.Module, batch: Any) -> Tensor:
    anchor, positive, negative = model(*batch[0])
    cosine = F.cosine_embedding_loss(anchor, negative, torch.tensor([-1.0] * len(anchor)), margin=0.1)
    return (
        F.triplet_margin_loss(anchor, positive, negative)
        + cosine
        + F.margin_ranking_loss(anchor[:, 0], positive[:, 0], torch.ones(len(anchor)))
    )


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.policy, self.value = nn.Sequential(nn.Linear(5, 16), nn.Tanh()), nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(state)
        return self.policy(hidden), self.value(hidden).squeeze(-1)


def _ppo_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return PPO's loss: clipped ratio, value loss and entropy; advantages are sums of later rewards."""
    (state,), (action, before, reward) = batch
    logits, value = model(state)
    advantage = torch.flip(torch.cumsum(torch.flip(reward, [0]), 0), [0]) - value.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy = Categorical(logits=logits)
    ratio = (policy.log_prob(action) - before).exp()
    gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    return -gain + F.huber_loss(value, reward) - 0.01 * policy.entropy().mean()


class GaussianProcess(nn.Module):
    """Gaussian process regression: its marginal likelihood needs the Cholesky factor and determinant of a kernel matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.length, self.noise = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        distance = (x[:, None] - x[None]).square().sum(-1)
        return torch.exp(-distance / 2 * self.length.exp()) + (self.noise.exp() + 1e-3) * torch.eye(len(x))


def _likelihood(model: nn.Module, batch: Any) -> Tensor:
    return -MultivariateNormal(torch.zeros(len(batch[1])), model(*batch[0])).log_prob(batch[1])


# -- torch's own transformer --------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """`nn.TransformerEncoder` with padding. In evaluation torch uses its fused path and nested tensors."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, **options)
        self.embed = nn.Embedding(20, 16)
        self.encoder, self.head = (
            nn.TransformerEncoder(layer, 2, enable_nested_tensor=not options.get("norm_first")),
            nn.Linear(16, 3),
        )

    def forward(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(tokens), src_key_padding_mask=padding_mask)[:, 0])


class Seq2Seq(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.body = nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True)

    def forward(self, source: Tensor, target: Tensor, padding_mask: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(
            self.body(
                self.embed(source), self.embed(target), tgt_mask=causal, src_key_padding_mask=padding_mask, tgt_is_causal=True
            )
        )


def _padding_mask() -> Tensor:
    return torch.tensor([[False] * 6, [False] * 4 + [True] * 2])


def _class_loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(*batch[0]), batch[1])


def _token_loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(*batch[0]).flatten(0, 1), batch[1].flatten(), ignore_index=0)


def _padded_batch() -> Any:
    return (torch.randint(20, (2, 6)), _padding_mask()), torch.tensor([0, 2])


def _first_of(model: nn.Module, batch: Any) -> list[Tensor]:
    return tensors_of(model(*batch[0])[0])


ENTRIES = (
    plain_entry(
        "diffusion u-net",
        DiffusionUNet,
        lambda: ((torch.randn(2, 3, 8, 8), torch.tensor([3, 70])), torch.randn(2, 3, 8, 8)),
        _denoise,
    ),
    plain_entry("variational autoencoder", Autoencoder, lambda: ((torch.randn(4, 12), torch.randn(4, 4)),), _elbo, _first_of),
    plain_entry("vq-vae", VectorQuantiser, lambda: ((torch.randn(2, 2, 10),),), _quantiser_loss),
    plain_entry("normalising flow", Coupling, lambda: ((torch.randn(6, 4),),), lambda model, batch: -model(*batch[0]).mean()),
    plain_entry(
        "neural ODE",
        NeuralODE,
        lambda: ((torch.randn(4, 2),), torch.randn(4, 2)),
        lambda model, batch: F.l1_loss(model(*batch[0]), batch[1]),
    ),
    # Its forward pass computes a gradient, which inference mode does not permit.
    replace(
        plain_entry(
            "hamiltonian network",
            HamiltonianNetwork,
            lambda: ((torch.randn(4, 4),), torch.randn(4, 4)),
            lambda model, batch: F.mse_loss(model(*batch[0]), batch[1]),
        ),
        columns=("eval", "train"),
    ),
    _gan_entry("dcgan, spectral norm", True, _hinge),
    _gan_entry("wgan, gradient penalty", False, _gradient_penalty),
    plain_entry("contrastive towers", TwoTowers, lambda: ((torch.randn(4, 6), torch.randint(20, (4, 3))),), _contrastive_loss),
    plain_entry("triplets", Triplets, lambda: (tuple(torch.randn(4, 6) for _ in range(3)),), _triplet_loss),
    plain_entry(
        "actor and critic, ppo",
        ActorCritic,
        lambda: ((torch.randn(8, 5),), (torch.randint(3, (8,)), -torch.rand(8), torch.randn(8))),
        _ppo_loss,
    ),
    plain_entry("gaussian process", GaussianProcess, lambda: ((torch.randn(6, 2),), torch.randn(6)), _likelihood),
    plain_entry("transformer encoder, padded", Classifier, _padded_batch, _class_loss),
    plain_entry(
        "transformer encoder, norm first", lambda: Classifier(norm_first=True, activation="gelu"), _padded_batch, _class_loss
    ),
    plain_entry(
        "transformer",
        Seq2Seq,
        lambda: ((torch.randint(20, (2, 6)), torch.randint(20, (2, 5)), _padding_mask()), torch.randint(20, (2, 5))),
        _token_loss,
    ),
)
