"""Five models at real sizes, in plain torch: what `on_gpu.py` trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["MODELS", "Model"]


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, *, causal: bool = False, rotary: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.causal, self.rotary = heads, causal, rotary
        self.qkv, self.out = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.rotary:
            q, k = _rotated(q), _rotated(k)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def _rotated(x: Tensor) -> Tensor:
    length, size = x.shape[-2:]
    angle = torch.outer(torch.arange(length, device=x.device), 10000 ** -(torch.arange(0, size, 2, device=x.device) / size))
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()], -1).flatten(-2)


class _Gated(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(width, hidden, False),
            nn.Linear(width, hidden, False),
            nn.Linear(hidden, width, False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class _Block(nn.Module):
    def __init__(self, norm: Callable[[], nn.Module], attention: nn.Module, feed: nn.Module) -> None:
        super().__init__()
        self.before, self.attention, self.between, self.feed = norm(), attention, norm(), feed

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.feed(self.between(x))  # type: ignore[no-any-return]


def _feed(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Language(nn.Module):
    """A decoder of tokens: GPT-2's (learned positions, layer norm), or LLaMA's (rotary positions, RMS norm, SwiGLU)."""

    def __init__(self, tokens: int, width: int, heads: int, layers: int, length: int | None) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.places = None if length is None else nn.Embedding(length, width)

        def norm() -> nn.Module:
            return nn.RMSNorm(width) if length is None else nn.LayerNorm(width)

        def block() -> nn.Module:
            attention = _Attention(width, heads, causal=True, rotary=length is None, bias=length is not None)
            return _Block(norm, attention, _Gated(width, width * 11 // 4) if length is None else _feed(width))

        self.blocks, self.norm = nn.Sequential(*(block() for _ in range(layers))), norm()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.tokens(x)
        if self.places is not None:
            hidden = hidden + self.places.weight[: x.shape[1]]
        return F.linear(self.norm(self.blocks(hidden)), self.tokens.weight).transpose(1, 2)


class Vision(nn.Module):
    """ViT-B/16."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, 768, 16, 16), nn.Parameter(torch.randn(196, 768) * 0.02)
        blocks = (_Block(lambda: nn.LayerNorm(768), _Attention(768, 12), _feed(768)) for _ in range(12))
        self.blocks, self.head = nn.Sequential(*blocks, nn.LayerNorm(768)), nn.Linear(768, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2) + self.places).mean(1))  # type: ignore[no-any-return]


class _Bottleneck(nn.Module):
    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *(nn.Conv2d(given, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        shorter = nn.Sequential(nn.Conv2d(given, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.aside = shorter if given != 4 * width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.main(x) + self.aside(x))


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    given = 64
    for number, count in enumerate((3, 4, 6, 3)):
        for at in range(count):
            layers.append(_Bottleneck(given, 64 << number, 2 if number and not at else 1))
            given = 4 * (64 << number)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


@dataclass(frozen=True)
class Model:
    """A model, and functions that make its input and its classes on a device."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[str], tuple[Tensor, Tensor]]


def _tokens(count: int, length: int, known: int) -> Callable[[str], tuple[Tensor, Tensor]]:
    def make(device: str) -> tuple[Tensor, Tensor]:
        x = torch.randint(known, (count, length + 1)).to(device)
        return x[:, :-1].contiguous(), x[:, 1:].contiguous()

    return make


def _rows(*shape: int) -> Callable[[str], tuple[Tensor, Tensor]]:
    return lambda device: (torch.randn(shape).to(device), torch.randint(1000, shape[:1]).to(device))


def _perceptron() -> nn.Module:
    hidden = (layer for _ in range(4) for layer in (nn.Linear(4096, 4096), nn.GELU()))
    return nn.Sequential(*hidden, nn.Linear(4096, 1000))


MODELS = (
    Model("GPT-2 124M, 8 x 512 tokens", lambda: Language(50257, 768, 12, 12, 1024), _tokens(8, 512, 50257)),
    Model("LLaMA, 8 layers, 4 x 1024 tokens", lambda: Language(32000, 2048, 16, 8, None), _tokens(4, 1024, 32000)),
    Model("ViT-B/16, 32 images", Vision, _rows(32, 3, 224, 224)),
    Model("ResNet-50, 64 images", resnet50, _rows(64, 3, 224, 224)),
    Model("MLP 4096, 4096 rows", _perceptron, _rows(4096, 4096)),
)
