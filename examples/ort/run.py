"""Run models in inference on ONNX Runtime, and print the time and the difference from eager.

python examples/ort/run.py --runs 20
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import eagerdecomp as ed

sys.path.insert(0, str(Path(__file__).parent))
import ort

Net = tuple[Callable[..., Any], tuple[Tensor, ...]]


class Block(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False), nn.BatchNorm2d(out_channels)
        self.second, self.last = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False), nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential(nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.last(self.second(F.relu(self.norm(self.first(x))))))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.body = nn.Sequential(Block(64, 64, 1), Block(64, 128, 2), Block(128, 256, 2))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.out = nn.Embedding(100, 64), nn.Linear(256, 100)
        self.cells = nn.LSTM(64, 128, 2, batch_first=True, bidirectional=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.cells(self.tokens(tokens))[0])


class Layer(nn.Module):
    """A transformer layer with causal attention. It returns its keys and values, for the next call."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm, self.last = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        query, key, value = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, -1))
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.up(self.last(x)), (key, value)


class GPT(nn.Module):
    def __init__(self, width: int = 128, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(100, width), nn.Embedding(128, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 100, bias=False)

    def forward(self, tokens: Tensor, past: list[Any] | None = None) -> tuple[Tensor, list[Any]]:
        start = past[0][0].shape[2] if past else 0
        x, present = self.tokens(tokens) + self.positions(torch.arange(start, start + tokens.shape[1])), []
        for layer, before in zip(self.layers, past or [None] * len(self.layers), strict=True):
            x, after = layer(x, before)
            present.append(after)
        return self.out(self.norm(x)), present


class Generate(nn.Module):
    """Generate `steps` tokens. Each is the most probable one of the top 5, with a temperature."""

    def __init__(self, net: GPT, steps: int) -> None:
        super().__init__()
        self.net, self.steps = net, steps

    def forward(self, tokens: Tensor) -> Tensor:
        past, new = None, tokens
        for _ in range(self.steps):
            scores, past = self.net(new, past)
            best, indices = (scores[:, -1] / 0.8).topk(5)
            new = indices.gather(1, best.softmax(-1).argmax(-1, keepdim=True))
            tokens = torch.cat([tokens, new], 1)
        return tokens


def nets() -> dict[str, Net]:
    torch.manual_seed(0)
    gpt = GPT().eval()
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 3)
    found: dict[str, Net] = {
        "convnet": (ResNet().eval(), (torch.randn(1, 3, 96, 96),)),
        "encoder": (encoder.eval(), (torch.randn(4, 32, 128),)),
        "LSTM": (Recurrent().eval(), (torch.randint(0, 100, (4, 20)),)),
        "GPT": (gpt, (torch.randint(0, 100, (1, 64)),)),
        "GPT, 20 generated": (Generate(gpt, 20), (torch.randint(0, 100, (1, 8)),)),
    }
    if importlib.util.find_spec("transformers"):
        import transformers

        config = transformers.BertConfig(hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512)
        found["transformers BERT"] = (transformers.BertModel(config).eval(), (torch.randint(0, 30000, (2, 32)),))
    return found


def relative_difference(got: Any, want: Any) -> float:
    """Return the largest difference, relative to the largest element."""
    pairs = zip(tree_leaves(got), tree_leaves(want), strict=True)
    return max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs if isinstance(other, Tensor))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", metavar="N", type=int, default=20, help="number of timed runs (default: %(default)s)")
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    mode = ed.EagerDecompMode(ort.backend)  # one mode for all models, because it caches handlers

    def run_in_mode(net: Callable[..., Any], args: Any) -> Any:
        with mode:
            return net(*args)

    print("milliseconds of CPU time for one inference (median), and the largest relative difference from eager")
    print(f"{'net':32}{'eager':>8}{'kernels':>10}{'session':>10}{'difference':>12}")
    with torch.no_grad():
        for name, (net, args) in nets().items():
            ways: list[Callable[[], Any]] = [lambda: net(*args), lambda: run_in_mode(net, args)]  # noqa: B023
            if not isinstance(net, Generate):  # its shapes change at each step
                session = ort.exported(net, *args)
                ways.append(lambda: session(*args))  # noqa: B023
            want, *got = [way() for way in ways]
            times: list[list[float]] = [[] for _ in ways]
            for _ in range(runs):
                for way, spent in zip(ways, times, strict=True):
                    start = time.process_time()
                    way()
                    spent.append(1e3 * (time.process_time() - start))
            shown = [f"{statistics.median(spent):.2f}" for spent in times] + ["-"] * (3 - len(ways))
            print(
                f"{name:32}{shown[0]:>8}{shown[1]:>10}{shown[2]:>10}{max(relative_difference(one, want) for one in got):>12.0e}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
