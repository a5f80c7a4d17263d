"""The models that are measured: small models of the usual kinds, in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Job", "KINDS", "NETS", "Net", "selected_nets", "job", "jobs"]

KINDS = ("infer", "train", "generate")
VOCABULARY = 32


@dataclass(frozen=True)
class Net:
    """A model and what its passes do.

    Attributes:
        name: its name in tables.
        make: builds the model.
        batch: builds a batch: the inputs and the targets.
        forward: applies the model to a batch.
        loss: returns the loss of a batch.
        generate: generates tokens; None if the model cannot.
        trainer: builds the training step; None for AdamW on `loss`.
    """

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[], Any]
    forward: Callable[[Any, Any], Any]
    loss: Callable[[Any, Any], Tensor]
    generate: Callable[[Any], Any] | None = None
    trainer: Callable[[Any, Any], Callable[[], Any]] | None = None


@dataclass(frozen=True)
class Job:
    """A model, and a function that runs one pass of it."""

    model: nn.Module
    run: Callable[[], Any]


def job(net: Net, kind: str) -> Job:
    """Return a new model, always from the same seed, with a pass of this kind."""
    torch.manual_seed(0)
    model, batch = net.make(), net.batch()
    if kind == "train":
        return Job(model, net.trainer(model, batch) if net.trainer else adamw_step(model, lambda: net.loss(model, batch)))
    model.eval()
    generate = net.generate

    def infer() -> Any:
        with torch.no_grad():
            return net.forward(model, batch) if kind == "infer" or generate is None else generate(model)

    return Job(model, infer)


def jobs(nets: tuple[Net, ...]) -> list[tuple[Net, str]]:
    """Return each model with each kind of pass that it has."""
    return [(net, kind) for kind in KINDS for net in nets if kind != "generate" or net.generate is not None]


def adamw_step(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """Return a training step with AdamW (foreach). It ends without gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> None:
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def _forward(model: Any, batch: Any) -> Any:
    return model(*batch[0])


def _class_loss(model: Any, batch: Any) -> Tensor:
    return F.cross_entropy(model(*batch[0]), batch[1])


def _token_loss(model: Any, batch: Any) -> Tensor:
    return F.cross_entropy(model(*batch[0])[0].flatten(0, 1), batch[1].flatten())


def _images(count: int = 4, side: int = 16) -> Any:
    return (torch.rand(count, 3, side, side),), torch.randint(10, (count,))


def _text(count: int = 4, length: int = 16) -> Any:
    return (torch.randint(VOCABULARY, (count, length)),), torch.randint(VOCABULARY, (count, length))


# -- images -------------------------------------------------------------------------------------------------------


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(768, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 10)
    )


def _cnn() -> nn.Module:
    first = nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(32, 10))


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm_1, self.norm_2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norm_1(self.first(x)), inplace=True)
        return F.relu(x + self.norm_2(self.second(inner)))


def _resnet() -> nn.Module:
    stem = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)
    return nn.Sequential(*stem, *(_Residual(16) for _ in range(3)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


class _UNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down, self.deep = self._block(3, width), self._block(width, 2 * width)
        self.up, self.join = nn.ConvTranspose2d(2 * width, width, 2, stride=2), self._block(2 * width, width)
        self.head = nn.Conv2d(width, 10, 1)

    @staticmethod
    def _block(before: int, after: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(2, after), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        first = self.down(x)
        up: Tensor = self.up(self.deep(F.max_pool2d(first, 2)))
        head: Tensor = self.head(self.join(torch.cat([up, first], 1)))
        return head


def _pixel_loss(model: Any, batch: Any) -> Tensor:
    return F.cross_entropy(model(*batch[0]), batch[1])


class _Autoencoder(nn.Module):
    """A variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ELU(), nn.Linear(64, 32))
        self.decode = nn.Sequential(nn.Linear(16, 64), nn.ELU(), nn.Linear(64, 768), nn.Sigmoid())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, spread = self.encode(x).chunk(2, 1)
        return self.decode(mean + torch.randn_like(mean) * (spread / 2).exp()), mean, spread


def _elbo_loss(model: Any, batch: Any) -> Tensor:
    seen, mean, spread = model(*batch[0])
    divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1).mean()
    return F.binary_cross_entropy(seen, batch[0][0].flatten(1)).add(divergence)


class _Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.LeakyReLU(0.2), nn.Linear(64, 768), nn.Tanh())
        self.discriminator = nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(64, 1))


def _gan_step(model: Any, batch: Any) -> Callable[[], None]:
    (images,), _ = batch
    noise = torch.randn(len(images), 16)
    real, false = torch.ones(len(images), 1), torch.zeros(len(images), 1)

    def discriminator_loss() -> Tensor:
        loss = F.binary_cross_entropy_with_logits(model.discriminator(images), real)
        return loss + F.binary_cross_entropy_with_logits(model.discriminator(model.generator(noise).detach()), false)

    def generator_loss() -> Tensor:
        return F.binary_cross_entropy_with_logits(model.discriminator(model.generator(noise)), real)

    train_discriminator = adamw_step(model.discriminator, discriminator_loss)
    train_generator = adamw_step(model.generator, generator_loss)

    def step() -> None:
        train_discriminator()
        train_generator()
        model.zero_grad()  # the generator's loss leaves gradients in the discriminator

    return step


# -- text ---------------------------------------------------------------------------------------------------------


def _encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, activation="gelu", batch_first=True)


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, 32), nn.Linear(32, 10)
        self.layers = nn.ModuleList(_encoder_layer() for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        head: Tensor = self.head(x.mean(1))
        return head


class _Block(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        parts = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh")), (key, value)


class _Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(VOCABULARY, 32), nn.Embedding(64, 32)
        self.blocks = nn.ModuleList(_Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, past: Any = (None, None)) -> tuple[Tensor, list[Any]]:
        start = 0 if past[0] is None else past[0][0].shape[2]
        x = self.embed(tokens) + self.positions(torch.arange(start, start + tokens.shape[1]))
        present = []
        for block, before in zip(self.blocks, past, strict=True):
            x, key_and_value = block(x, before)
            present.append(key_and_value)
        return self.head(self.norm(x)), present


def _generate_greedily(model: Any) -> Tensor:
    tokens = torch.arange(8)[None]
    scores, past = model(tokens)
    for _ in range(8):
        tokens = torch.cat([tokens, scores[:, -1].argmax(-1, keepdim=True)], 1)
        scores, past = model(tokens[:, -1:], past)
    return tokens


class _Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, 16), nn.Linear(32, VOCABULARY)
        self.cells = nn.LSTM(16, 32, num_layers=2, batch_first=True)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        x, state = self.cells(self.embed(tokens), state)
        return self.head(x), state


def _generate_by_sampling(model: Any) -> list[Tensor]:
    last, state, written = torch.zeros(1, 1, dtype=torch.long), None, []
    for _ in range(8):
        scores, state = model(last, state)
        last = torch.multinomial(scores[:, -1].softmax(-1), 1)
        written.append(last)
    return written


class _Translator(nn.Module):
    """A GRU encoder, and a GRU cell as decoder, with attention over the encoder's outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, 16), nn.Linear(64, VOCABULARY)
        self.encoder, self.cell = nn.GRU(16, 32, batch_first=True), nn.GRUCell(16, 32)

    def step(self, token: Tensor, hidden: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.cell(self.embed(token), hidden)
        weights = torch.bmm(memory, hidden[:, :, None]).softmax(1)
        return self.head(torch.cat([hidden, (weights * memory).sum(1)], 1)), hidden

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        memory, last = self.encoder(self.embed(tokens))
        hidden, scores = last[0], []
        for token in tokens.unbind(1)[:6]:
            score, hidden = self.step(token, hidden, memory)
            scores.append(score)
        return torch.stack(scores, 1), hidden


def _translation_batch() -> Any:
    return (torch.randint(VOCABULARY, (4, 10)),), torch.randint(VOCABULARY, (4, 6))


def _translate(model: Any) -> Tensor:
    memory, last = model.encoder(model.embed(torch.arange(10)[None]))
    token, hidden = torch.zeros(1, dtype=torch.long), last[0]
    for _ in range(8):
        scores, hidden = model.step(token, hidden, memory)
        token = scores.log_softmax(-1).topk(1).indices[:, 0]
    return token


# -- tables and graphs --------------------------------------------------------------------------------------------


class _Dlrm(nn.Module):
    """DLRM: embedding bags of categories, dense features, and the dot products of all pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(20, 8, mode="sum") for _ in range(3))
        self.dense = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(14, 8), nn.ReLU(), nn.Linear(8, 1))
        row, column = torch.tril_indices(4, 4, -1)
        self.pairs = nn.Buffer(4 * row + column)

    def forward(self, dense: Tensor, indices: Tensor, offsets: Tensor) -> Tensor:
        dense = self.dense(dense)
        rows = torch.stack([dense, *(bag(indices, offsets) for bag in self.bags)], 1)
        products = torch.bmm(rows, rows.mT).flatten(1)[:, self.pairs]
        clicked: Tensor = self.head(torch.cat([dense, products], 1)).squeeze(1)
        return clicked


def _click_batch() -> Any:
    return (torch.randn(4, 4), torch.randint(20, (11,)), torch.tensor([0, 3, 3, 8])), torch.tensor([0.0, 1, 1, 0])


class _GraphConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 10)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        def spread(values: Tensor) -> Tensor:
            return torch.zeros_like(values).index_add(0, target, values[source])

        return spread(self.second(F.dropout(spread(self.first(nodes)).relu(), 0.2, self.training)))


def _graph_batch() -> Any:
    return (torch.randn(10, 8), torch.randint(10, (30,)), torch.randint(10, (30,))), torch.randint(10, (10,))


NETS: tuple[Net, ...] = (
    Net("MLP", _mlp, _images, _forward, _class_loss),
    Net("GPT with a cache", _Gpt, _text, _forward, _token_loss, _generate_greedily),
    Net("CNN", _cnn, _images, _forward, _class_loss),
    Net("ResNet", _resnet, _images, _forward, _class_loss),
    Net("U-Net", _UNet, lambda: ((torch.rand(2, 3, 16, 16),), torch.randint(10, (2, 16, 16))), _forward, _pixel_loss),
    Net("variational autoencoder", _Autoencoder, _images, _forward, _elbo_loss),
    Net("GAN", _Gan, _images, lambda m, b: m.discriminator(m.generator(torch.ones(4, 16))), _class_loss, trainer=_gan_step),
    Net("transformer encoder", _Encoder, lambda: (_text()[0], torch.randint(10, (4,))), _forward, _class_loss),
    Net("LSTM", _Lstm, _text, _forward, _token_loss, _generate_by_sampling),
    Net("GRU with attention", _Translator, _translation_batch, _forward, _token_loss, _translate),
    Net(
        "DLRM",
        _Dlrm,
        _click_batch,
        _forward,
        lambda model, batch: F.binary_cross_entropy_with_logits(model(*batch[0]), batch[1]),
    ),
    Net("graph convolution", _GraphConvolution, _graph_batch, _forward, _class_loss),
)


def selected_nets(quick: bool) -> tuple[Net, ...]:
    """Return the models of a quick run, or all."""
    return NETS[:2] if quick else NETS
