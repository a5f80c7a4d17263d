"""Small models in plain torch that a scorecard trains on a backend: one for each usual kind of network, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["MODELS", "Made"]

#: A model and its inputs. Its result is a tensor.
Made: TypeAlias = tuple[nn.Module, tuple[Tensor, ...]]


class _Calls(nn.Module):
    """A module of parts, with a function of the parts and the inputs as its forward."""

    def __init__(self, forward: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.parts, self._forward = nn.ModuleDict(parts), forward

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._forward(self.parts, *inputs)


def _mlp() -> Made:
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 4)), (torch.randn(8, 12),)


def _convolutional() -> Made:
    parts = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3, stride=2), nn.SiLU()
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5)), (torch.randn(4, 3, 16, 16),)


def _residual() -> Made:
    def forward(parts: Any, x: Tensor) -> Tensor:
        y = parts["second"](F.relu(parts["norm"](parts["first"](x))))
        return F.avg_pool2d(F.relu(y + parts["short"](x)), 2)

    convolutions = {"first": nn.Conv2d(4, 8, 3, 2, 1, bias=False), "second": nn.Conv2d(8, 8, 3, 1, 1, groups=2)}
    return _Calls(forward, norm=nn.GroupNorm(2, 8), short=nn.Conv2d(4, 8, 1, 2), **convolutions), (torch.randn(2, 4, 12, 12),)


def _u_net() -> Made:
    def forward(parts: Any, x: Tensor) -> Tensor:
        down = F.leaky_relu(parts["in"](x))
        middle = F.gelu(parts["down"](down))
        up = torch.cat([parts["up"](middle), F.interpolate(middle, scale_factor=2.0, mode="bilinear")], 1)
        result: Tensor = parts["out"](torch.cat([up, down], 1))
        return result

    ends = {"in": nn.Conv2d(1, 4, 3, padding=1), "out": nn.Conv2d(16, 1, 1)}
    return _Calls(forward, down=nn.Conv2d(4, 8, 2, 2), up=nn.ConvTranspose2d(8, 4, 2, 2), **ends), (torch.randn(2, 1, 8, 8),)


def _sequence(layer: Callable[..., nn.Module]) -> Callable[[], Made]:
    def forward(parts: Any, x: Tensor) -> Tensor:
        result: Tensor = parts["out"](parts["cells"](x)[0][:, -1])
        return result

    return lambda: (
        _Calls(forward, cells=layer(6, 10, num_layers=2, batch_first=True), out=nn.Linear(10, 3)),
        (torch.randn(3, 7, 6),),
    )


def _encoder() -> Made:
    return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", batch_first=True), (torch.randn(2, 6, 16),)


def _decoder() -> Made:
    def forward(parts: Any, tokens: Tensor) -> Tensor:
        x = parts["tokens"](tokens) + parts["places"](torch.arange(tokens.shape[1], device=tokens.device))
        query, key, value = parts["qkv"](parts["norm"](x)).view(*tokens.shape, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind()
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + parts["mix"](mixed.transpose(1, 2).flatten(2))
        return F.log_softmax(x @ parts["tokens"].weight.t(), -1)

    parts = {"tokens": nn.Embedding(20, 16), "places": nn.Embedding(9, 16), "norm": nn.LayerNorm(16)}
    return _Calls(forward, qkv=nn.Linear(16, 48), mix=nn.Linear(16, 16), **parts), (torch.randint(20, (2, 9)),)


def _llama_block() -> Made:
    """Return a block with rotary positions, RMS normalization and a gated feed-forward layer."""

    def rotated(x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[-2], device=x.device), 100.0 ** -torch.arange(4, device=x.device).div(4))
        one, other = x.chunk(2, -1)
        return torch.cat([one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()], -1)

    def forward(parts: Any, x: Tensor) -> Tensor:
        query, key, value = parts["qkv"](parts["norm"](x)).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4).unbind()
        scores = (rotated(query) @ rotated(key).mT / 8**0.5).masked_fill(torch.ones(6, 6, device=x.device).triu(1).bool(), -1e9)
        x = x + parts["mix"]((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
        gate, up = parts["up"](x).chunk(2, -1)
        result: Tensor = x + parts["down"](F.silu(gate) * up)
        return result

    layers = {"qkv": (16, 48), "mix": (16, 16), "up": (16, 64), "down": (32, 16)}
    parts = {name: nn.Linear(*sizes, bias=False) for name, sizes in layers.items()}
    return _Calls(forward, norm=nn.RMSNorm(16), **parts), (torch.randn(2, 6, 16),)


def _embedding_bag() -> Made:
    def forward(parts: Any, indices: Tensor, dense: Tensor) -> Tensor:
        joined = torch.cat([parts["bag"](indices), F.relu(parts["dense"](dense))], 1)
        result: Tensor = parts["top"](joined).sigmoid()
        return result

    parts = {"bag": nn.EmbeddingBag(30, 8, mode="sum"), "dense": nn.Linear(5, 8), "top": nn.Linear(16, 1)}
    return _Calls(forward, **parts), (torch.randint(30, (6, 4)), torch.randn(6, 5))


def _graph() -> Made:
    """Return a layer that sends messages along the edges of a graph."""

    def forward(parts: Any, nodes: Tensor, edges: Tensor) -> Tensor:
        messages = F.elu(parts["message"](torch.cat([nodes[edges[0]], nodes[edges[1]]], 1)))
        summed = torch.zeros_like(nodes).index_add(0, edges[1], messages)
        result: Tensor = parts["cell"](summed, nodes)
        return result

    return _Calls(forward, message=nn.Linear(16, 8), cell=nn.GRUCell(8, 8)), (torch.randn(10, 8), torch.randint(10, (2, 24)))


#: Name -> function that makes a model and its inputs, from torch's random numbers.
MODELS: Mapping[str, Callable[[], Made]] = {
    "MLP": _mlp,
    "convolutional": _convolutional,
    "residual": _residual,
    "U-Net": _u_net,
    "LSTM": _sequence(nn.LSTM),
    "GRU": _sequence(nn.GRU),
    "transformer encoder": _encoder,
    "transformer decoder": _decoder,
    "LLaMA block": _llama_block,
    "embedding bag": _embedding_bag,
    "graph": _graph,
}
