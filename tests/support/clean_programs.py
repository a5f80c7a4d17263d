"""Small programs that train or evaluate common layers correctly. Tests of `blame` and `verify=` check that nothing is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def classifier() -> None:
    """Train a small convolutional classifier for two steps."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 16),
        nn.SiLU(),
        nn.Dropout(0.1),
        nn.LayerNorm(16),
        nn.Linear(16, 5),
    )
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(net(torch.randn(3, 2, 8, 8)), torch.tensor([1, 0, 4])).backward()
        optimizer.step()


def transformer(dtype: torch.dtype = torch.float32, optimizer: Any = torch.optim.SGD, **options: Any) -> None:
    """Train an embedding and one encoder layer with dropout for two steps."""
    torch.manual_seed(0)
    embedding = nn.Embedding(11, 16).to(dtype)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, activation="gelu").to(dtype)
    head = nn.Linear(16, 11).to(dtype)
    parts = nn.ModuleList([embedding, layer, head])
    made = optimizer(parts.parameters(), lr=1e-2, **options)
    for _ in range(2):
        tokens = torch.randint(0, 11, (2, 6))
        loss = F.cross_entropy(head(layer(embedding(tokens))).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        made.step()
        made.zero_grad()


def recurrent() -> None:
    torch.manual_seed(0)
    net, head = nn.LSTM(4, 8, num_layers=2, dropout=0.2), nn.Linear(8, 3)
    out, _ = net(torch.randn(5, 2, 4))
    F.smooth_l1_loss(head(out), torch.zeros(5, 2, 3)).backward()


def evaluated() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(3, 6, 3, groups=3), nn.BatchNorm1d(6), nn.Hardswish(), nn.AdaptiveAvgPool1d(2)).eval()
    with torch.inference_mode():
        net(torch.randn(2, 3, 9)).softmax(-1).topk(1)
        F.scaled_dot_product_attention(*torch.randn(3, 2, 2, 4, 8), is_causal=True)
        torch.fft.rfft(torch.randn(8)).abs().std()


def mixed() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU("tanh"), nn.Linear(8, 2))
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(torch.randn(4, 8)).float().logsumexp(1).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)


CLEAN: dict[str, Callable[[], Any]] = {
    "classifier": classifier,
    "transformer": transformer,
    "transformer, bfloat16": lambda: transformer(torch.bfloat16),
    "transformer, float16": lambda: transformer(torch.float16),
    "transformer, float64": lambda: transformer(torch.float64),
    "fused AdamW": lambda: transformer(optimizer=torch.optim.AdamW, fused=True),
    "RMSprop, one by one": lambda: transformer(optimizer=torch.optim.RMSprop, foreach=False, momentum=0.9),
    "momentum, foreach": lambda: transformer(optimizer=torch.optim.SGD, foreach=True, momentum=0.9),
    "recurrent": recurrent,
    "evaluated": evaluated,
    "autocast": mixed,
}
