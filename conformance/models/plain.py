"""Models in plain torch, which need no other package: vision, graphs, point clouds, recommendation, recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conformance.models.entry import Entry, Subject

__all__ = ["ENTRIES"]


def plain_entry(
    name: str,
    model: Callable[[], nn.Module],
    batch: Callable[[], Any],
    loss: Callable[[nn.Module, Any], Tensor],
    forward: Callable[[nn.Module, Any], Any] = lambda model, batch: model(*batch[0]),
) -> Entry:
    """Return an entry whose batch is a tuple of the model's inputs and, if the loss needs one, the target."""
    return Entry(name, lambda: Subject(model(), batch(), forward, loss))


def _cross_entropy(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(*batch[0]).flatten(0, -2), batch[1].flatten())


def _squares(model: nn.Module, batch: Any) -> Tensor:
    return F.mse_loss(model(*batch[0]), batch[1])


# -- images -------------------------------------------------------------------------------------------------------


class UNet(nn.Module):
    """U-Net (Ronneberger et al.): pooling down, transposed convolution up, skip connections between them."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = (
            self._block(3, width),
            self._block(width, 2 * width),
            self._block(2 * width, 4 * width),
        )
        self.up2, self.up1 = (
            nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2),
            nn.ConvTranspose2d(2 * width, width, 2, stride=2),
        )
        self.join2, self.join1 = self._block(4 * width, 2 * width), self._block(2 * width, width)
        self.head = nn.Conv2d(width, 4, 1)

    @staticmethod
    def _block(before: int, after: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.LeakyReLU(0.1, inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        middle = self.middle(F.max_pool2d(second, 2))
        up = self.join2(torch.cat([self.up2(middle), second], 1))
        return self.head(self.join1(torch.cat([self.up1(up), first], 1)))


def _dice(model: nn.Module, batch: Any) -> Tensor:
    scores, labels = model(*batch[0]), batch[1]
    probabilities, target = scores.softmax(1), F.one_hot(labels, 4).movedim(-1, 1)
    overlap = 2 * (probabilities * target).sum((2, 3)) / (probabilities + target).sum((2, 3))
    return F.cross_entropy(scores, labels, label_smoothing=0.1) + (1 - overlap).mean()


class SuperResolution(nn.Module):
    """Super-resolution by sub-pixel convolution, with reflection padding, added to a bicubic interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(2), nn.Conv2d(3, 16, 5), nn.Tanh(), nn.Conv2d(16, 12, 3, padding=1, padding_mode="circular")
        )
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.shuffle(self.body(x)) + F.interpolate(x, scale_factor=2, mode="bicubic")


class SpatialTransformer(nn.Module):
    """Spatial transformer (Jaderberg et al.): the network computes an affine crop, which `grid_sample` reads."""

    def __init__(self) -> None:
        super().__init__()
        self.localization = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 16), nn.SELU(), nn.Linear(16, 6))
        self.classifier = nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(27, 4))

    def forward(self, x: Tensor) -> Tensor:
        affine = self.localization(x).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        return self.classifier(F.grid_sample(x, F.affine_grid(affine, list(x.shape), align_corners=False), align_corners=False))


IMAGES = (
    plain_entry("u-net", UNet, lambda: ((torch.randn(2, 3, 16, 16),), torch.randint(4, (2, 16, 16))), _dice),
    plain_entry(
        "sub-pixel super-resolution", SuperResolution, lambda: ((torch.rand(2, 3, 8, 8),), torch.rand(2, 3, 16, 16)), _squares
    ),
    plain_entry(
        "spatial transformer", SpatialTransformer, lambda: ((torch.rand(4, 3, 8, 8),), torch.randint(4, (4,))), _cross_entropy
    ),
)


# -- graphs and points --------------------------------------------------------------------------------------------


class GraphConvolution(nn.Module):
    """Graph convolution (Kipf and Welling) over an edge list, with sums by `index_add`."""

    def __init__(self, inputs: int = 8, hidden: int = 16, outputs: int = 3) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        degree = torch.bincount(target, minlength=len(nodes)).clamp(min=1).to(nodes.dtype)
        weight = (degree[source] * degree[target]).rsqrt()[:, None]

        def spread(values: Tensor) -> Tensor:
            return torch.zeros_like(values).index_add(0, target, values[source] * weight)

        return spread(self.second(spread(self.first(nodes)).relu()))


class SparseGraphConvolution(GraphConvolution):
    """Graph convolution by products with a sparse adjacency matrix: COO, coalesced, converted to CSR."""

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        size = len(nodes)
        adjacency = torch.sparse_coo_tensor(edges.flip(0), torch.ones(edges.shape[1], dtype=nodes.dtype), (size, size)).coalesce()
        degree = torch.sparse.sum(adjacency, 1).to_dense().clamp(min=1)
        weight = adjacency.values() / degree[adjacency.indices()[0]]
        scaled = torch.sparse_coo_tensor(adjacency.indices(), weight, (size, size)).to_sparse_csr()
        return scaled @ self.second((scaled @ self.first(nodes)).relu())


class GraphAttention(nn.Module):
    """Graph attention (Velickovic et al.): softmax over the edges of each node by `scatter_reduce` and `scatter_add`."""

    def __init__(self, inputs: int = 8, heads: int = 2, width: int = 4, outputs: int = 3) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.embed = nn.Linear(inputs, heads * width)
        self.score = nn.Parameter(torch.randn(heads, 2 * width))
        self.head = nn.Linear(heads * width, outputs)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        values = self.embed(nodes).unflatten(1, (self.heads, self.width))
        logits = F.leaky_relu((torch.cat([values[source], values[target]], -1) * self.score).sum(-1), 0.2)
        index = target[:, None].expand_as(logits)
        highest = logits.new_full((len(nodes), self.heads), -torch.inf).scatter_reduce(0, index, logits.detach(), "amax")
        weights = (logits - highest[target]).exp()
        total = torch.zeros_like(highest).scatter_add(0, index, weights)
        messages = values[source] * (weights / total[target])[..., None]
        gathered = torch.zeros_like(values).index_add_(0, target, messages)
        return self.head(F.elu(gathered.flatten(1)))


class PointNet(nn.Module):
    """PointNet (Qi et al.): a learned rotation, a network per point, and the maximum over the points."""

    def __init__(self) -> None:
        super().__init__()
        self.rotation_features = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.rotation = nn.Linear(16, 9)
        self.point_features = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, points: Tensor) -> Tensor:
        rotation = self.rotation(self.rotation_features(points).amax(2)).view(-1, 3, 3) + torch.eye(3)
        return self.head(F.max_pool1d(self.point_features(rotation @ points), points.shape[2]).flatten(1))


class EdgeConvolution(nn.Module):
    """Edge convolution over the nearest neighbours, which `cdist` and `topk` find."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.head = nn.Sequential(nn.Linear(6, 16), nn.GELU()), nn.Linear(16, 4)

    def forward(self, points: Tensor) -> Tensor:
        near = torch.cdist(points, points).topk(4, largest=False).indices
        neighbours = torch.gather(points[:, None].expand(-1, points.shape[1], -1, -1), 2, near[..., None].expand(-1, -1, -1, 3))
        centre = points[:, :, None].expand_as(neighbours)
        return self.head(self.edge(torch.cat([centre, neighbours - centre], -1)).amax((1, 2)))


class RadianceField(nn.Module):
    """Radiance field (NeRF) along rays: positional encoding, and alpha compositing by a cumulative product."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(3 * 2 * 4, 32), nn.Softplus(), nn.Linear(32, 4))

    def forward(self, origin: Tensor, direction: Tensor) -> Tensor:
        depths = torch.linspace(0.5, 2, 8)
        points = origin[:, None] + depths[:, None] * direction[:, None]
        phases = points[..., None] * 2 ** torch.arange(4) * math.pi
        colour, density = self.field(torch.cat([phases.sin(), phases.cos()], -1).flatten(-2)).split([3, 1], -1)
        alpha = 1 - torch.exp(-F.softplus(density) * 0.2)
        transmittance = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
        return (alpha * transmittance * colour.sigmoid()).sum(1)


def _graph() -> Any:
    return (torch.randn(10, 8), torch.randint(10, (2, 30))), torch.randint(3, (10,))


GRAPHS = (
    plain_entry("graph convolution", GraphConvolution, _graph, _cross_entropy),
    plain_entry("graph convolution, sparse adjacency", SparseGraphConvolution, _graph, _cross_entropy),
    plain_entry("graph attention", GraphAttention, _graph, _cross_entropy),
    plain_entry("point-net", PointNet, lambda: ((torch.randn(4, 3, 12),), torch.randint(4, (4,))), _cross_entropy),
    plain_entry(
        "edge convolution on points", EdgeConvolution, lambda: ((torch.randn(4, 12, 3),), torch.randint(4, (4,))), _cross_entropy
    ),
    plain_entry(
        "radiance field",
        RadianceField,
        lambda: ((torch.randn(6, 3), F.normalize(torch.randn(6, 3), dim=1)), torch.rand(6, 3)),
        _squares,
    ),
)


# -- recommendation -----------------------------------------------------------------------------------------------


class DeepRecommender(nn.Module):
    """DLRM: embedding bags, dense features, and the products of all pairs."""

    def __init__(self, mode: str = "sum", sparse: bool = False) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(20, 8, mode=mode, sparse=sparse) for _ in range(3))
        self.dense = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(8 + 6, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense: Tensor, indices: Tensor, offsets: Tensor) -> Tensor:
        dense = self.dense(dense)
        rows = torch.stack([dense, *(bag(indices, offsets) for bag in self.bags)], 1)
        row, column = torch.tril_indices(4, 4, -1)
        return self.head(torch.cat([dense, torch.bmm(rows, rows.mT)[:, row, column]], 1)).squeeze(1)


class FactorisationMachine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.bias = nn.Embedding(40, 1), nn.Embedding(40, 8, max_norm=1.0), nn.Parameter(torch.zeros(1))

    def forward(self, features: Tensor) -> Tensor:
        vectors = self.second(features)
        pairs = vectors.sum(1).square() - vectors.square().sum(1)
        return self.first(features).sum((1, 2)) + pairs.sum(1) / 2 + self.bias


def _click_loss(model: nn.Module, batch: Any) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(*batch[0]), batch[1], pos_weight=torch.tensor(2.0))


def _bag_batch() -> Any:
    return (torch.randn(4, 4), torch.randint(20, (11,)), torch.tensor([0, 3, 3, 8])), torch.tensor([0.0, 1, 1, 0])


RECOMMENDERS = (
    plain_entry("dlrm", DeepRecommender, _bag_batch, _click_loss),
    plain_entry("dlrm, largest of a bag", lambda: DeepRecommender("max"), _bag_batch, _click_loss),
    plain_entry("dlrm, mean of a bag", lambda: DeepRecommender("mean"), _bag_batch, _click_loss),
    plain_entry(
        "factorisation machine",
        FactorisationMachine,
        lambda: ((torch.randint(40, (4, 5)),), torch.tensor([0.0, 1, 1, 0])),
        _click_loss,
    ),
)


# -- recurrence ---------------------------------------------------------------------------------------------------


class Translator(nn.Module):
    """Translator (Bahdanau et al.): a bidirectional encoder of packed sequences, attention, and a decoder cell."""

    def __init__(self, kind: str, cell: str) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(20, 12, padding_idx=0), nn.Embedding(20, 12)
        self.encoder = getattr(nn, kind)(12, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.cell = getattr(nn, cell)(12 + 16, 16)
        self.score, self.head = nn.Bilinear(16, 16, 1), nn.Linear(32, 20)

    def forward(self, tokens: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.source(tokens), lengths, batch_first=True, enforce_sorted=False)
        memory, _ = nn.utils.rnn.pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=tokens.shape[1])
        is_padding = torch.arange(tokens.shape[1]) >= lengths[:, None]
        hidden = memory.new_zeros(len(tokens), 16)
        state: Any = (hidden, hidden) if isinstance(self.cell, nn.LSTMCell) else hidden
        scores = []
        for step in self.target(targets).unbind(1):
            weights = (
                self.score(hidden[:, None].expand_as(memory).contiguous(), memory)
                .squeeze(2)
                .masked_fill(is_padding, -torch.inf)
                .softmax(1)
            )
            context = (weights[..., None] * memory).sum(1)
            state = self.cell(torch.cat([step, context], 1), state)
            hidden = state[0] if isinstance(state, tuple) else state
            scores.append(self.head(torch.cat([hidden, context], 1)))
        return torch.stack(scores, 1)


class Recurrent(nn.Module):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.recurrent, self.head = getattr(nn, kind)(6, 8, num_layers=2, **options), nn.LazyLinear(3)
        self.head(torch.zeros(1, 16 if options.get("bidirectional") else options.get("proj_size") or 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(x)[0])


def _sentences() -> Any:
    return (torch.randint(1, 20, (3, 7)), torch.tensor([5, 7, 2]), torch.randint(20, (3, 4))), torch.randint(20, (3, 4))


def _series() -> Any:
    return (torch.randn(5, 2, 6),), torch.randint(3, (5, 2))


RECURRENT = (
    plain_entry("packed LSTM translator", lambda: Translator("LSTM", "LSTMCell"), _sentences, _cross_entropy),
    plain_entry("packed GRU translator", lambda: Translator("GRU", "GRUCell"), _sentences, _cross_entropy),
    plain_entry("packed RNN translator", lambda: Translator("RNN", "RNNCell"), _sentences, _cross_entropy),
    plain_entry("LSTM", lambda: Recurrent("LSTM"), _series, _cross_entropy),
    plain_entry("LSTM with projection", lambda: Recurrent("LSTM", proj_size=4), _series, _cross_entropy),
    plain_entry("GRU, both ways", lambda: Recurrent("GRU", bidirectional=True), _series, _cross_entropy),
    plain_entry("RNN, relu", lambda: Recurrent("RNN", nonlinearity="relu"), _series, _cross_entropy),
)

ENTRIES = (*IMAGES, *GRAPHS, *RECOMMENDERS, *RECURRENT)
