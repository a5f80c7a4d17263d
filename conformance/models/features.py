"""Training features on small models: optimizers, mixed precision, checkpointing, `torch.func`, parametrizations, layouts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parametrizations, prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from conformance.models.entry import Entry, Subject, train

__all__ = ["ENTRIES"]

Steps = Callable[[Subject], Any]


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=2),
            nn.GroupNorm(2, 8),
            nn.Hardswish(),
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Tied(nn.Module):
    """A small causal transformer whose output weights are its embedding."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.block(self.embed(tokens), src_mask=mask, is_causal=True))


def _loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, -2), batch[1].flatten())


def _rows() -> Any:
    return torch.randn(8, 6), torch.randint(3, (8,))


def _pictures() -> Any:
    return torch.randn(4, 3, 8, 8), torch.randint(3, (4,))


def _words() -> Any:
    return torch.randint(20, (2, 7)), torch.randint(20, (2, 7))


def feature(
    name: str,
    steps: Steps | None = None,
    model: Callable[[], nn.Module] = Perceptron,
    batch: Callable[[], Any] = _rows,
    optimizer: Any = None,
) -> Entry:
    """Return an entry that has only the column "train"."""

    def make() -> Subject:
        subject = Subject(model(), batch(), lambda model, batch: model(batch[0]), _loss, steps=steps)
        if optimizer is not None:
            subject.optimizer = optimizer
        return subject

    return Entry(name, make, columns=("train",))


# -- optimizers ---------------------------------------------------------------------------------------------------

#: Adam's first step is the sign of the gradient. For a gradient near zero rounding decides the sign, so eps is large.
_EPS = {"eps": 1e-3}

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {"lr": 0.01, **_EPS, "amsgrad": True},
    "AdamW": {"lr": 0.01, **_EPS},
    "NAdam": {"lr": 0.01, **_EPS},
    "RAdam": {"lr": 0.01, **_EPS},
    "Adamax": {"lr": 0.01, **_EPS},
    "Adadelta": {"lr": 1.0, **_EPS},
    "RMSprop": {"lr": 0.01, **_EPS, "momentum": 0.9, "centered": True},
    "Adagrad": {"lr": 0.1, **_EPS},
    "ASGD": {"lr": 0.1},
    "Rprop": {"lr": 0.01},
}
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")


def _optimizer_forms() -> list[tuple[str, str, dict[str, Any]]]:
    forms = [
        (f"{name}, {form}", name, {"foreach": form == "foreach"}) for name in OPTIMIZERS for form in ("single tensor", "foreach")
    ]
    return forms + [(f"{name}, fused", name, {"fused": True}) for name in FUSED]


def _optimizer(name: str, options: dict[str, Any]) -> Entry:
    optimizer = getattr(torch.optim, name)
    settings = {
        key: value for key, value in {**OPTIMIZERS[name], **options}.items() if not (key == "centered" and options.get("fused"))
    }
    return feature(title(name, options), partial(train, count=3), optimizer=lambda parameters: optimizer(parameters, **settings))


def title(name: str, options: dict[str, Any]) -> str:
    form = "fused" if options.get("fused") else "foreach" if options.get("foreach") else "single tensor"
    return f"{name}, {form}"


def _lbfgs(subject: Subject) -> list[Tensor]:
    optimizer = torch.optim.LBFGS(subject.model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = subject.loss(subject.model, subject.batch)
        loss.backward()
        return loss

    return [optimizer.step(closure).detach() for _ in range(2)]


def _sparse(subject: Subject) -> list[Tensor]:
    optimizer = torch.optim.SparseAdam(list(subject.model.parameters()), lr=0.01, eps=1e-3)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = subject.model(subject.batch[0]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def _sparse_bags(subject: Subject) -> list[Tensor]:
    """Accumulate, coalesce and clip sparse gradients of embedding bags, with the optimizers that accept them."""
    losses = []
    for make in (partial(torch.optim.SGD, lr=0.1, momentum=0.9), partial(torch.optim.Adagrad, lr=0.1)):
        optimizer = make(subject.model.parameters())
        for _ in range(2):
            optimizer.zero_grad(set_to_none=False)
            for _ in range(2):
                loss = subject.model(subject.batch[0]).square().mean()
                loss.backward()
            for parameter in subject.model.parameters():
                gradient = parameter.grad.coalesce()
                parameter.grad = gradient * (0.1 / (gradient.values().norm() + 1e-6)).clamp(max=1.0)
            optimizer.step()
            losses.append(loss.detach())
    return losses


def _scheduled(subject: Subject) -> list[Tensor]:
    optimizer = torch.optim.AdamW(subject.model.parameters(), lr=torch.tensor(0.01), eps=1e-3, capturable=False, foreach=False)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    losses = []
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        loss = subject.loss(subject.model, subject.batch)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return [*losses, torch.as_tensor(optimizer.param_groups[0]["lr"]).clone()]


# -- precision ----------------------------------------------------------------------------------------------------


def _autocast(subject: Subject, dtype: torch.dtype, count: int = 2) -> list[Tensor]:
    optimizer = subject.optimizer(subject.model.parameters())
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        with torch.autocast(subject.batch[0].device.type, dtype):
            loss = subject.loss(subject.model, subject.batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def _scaled(subject: Subject) -> list[Tensor]:
    """Train with gradient scaling. The second step overflows, so it is skipped and the scale is halved."""
    device = subject.batch[0].device.type
    optimizer, scaler = (
        subject.optimizer(subject.model.parameters()),
        torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=1),
    )
    losses = []
    for factor in (1.0, 1e38, 1.0):
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16):
            loss = subject.loss(subject.model, subject.batch)
        scaler.scale(loss * factor).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(subject.model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return [*losses, torch.tensor(scaler.get_scale())]


def _in_dtype(dtype: torch.dtype) -> Steps:
    def steps(subject: Subject) -> list[Tensor]:
        subject.model.to(dtype)
        subject.batch = (subject.batch[0].to(dtype), subject.batch[1])
        return train(subject)

    return steps


# -- memory -------------------------------------------------------------------------------------------------------


def _checkpointed(subject: Subject, reentrant: bool) -> list[Tensor]:
    x, labels = subject.batch
    subject.batch = (x.clone().requires_grad_(), labels)
    subject.loss = lambda model, batch: F.cross_entropy(checkpoint(model, batch[0], use_reentrant=reentrant), batch[1])
    return [*train(subject), subject.batch[0].grad]


def _in_segments(subject: Subject) -> list[Tensor]:
    subject.loss = lambda model, batch: F.cross_entropy(
        checkpoint_sequential(model.body, 2, batch[0], use_reentrant=False), batch[1]
    )
    return train(subject)


def _accumulated(subject: Subject) -> list[Tensor]:
    optimizer = subject.optimizer(subject.model.parameters())
    losses = []
    for _ in range(2):
        for x, labels in zip(subject.batch[0].chunk(4), subject.batch[1].chunk(4), strict=True):
            loss = subject.loss(subject.model, (x, labels)) / 4
            loss.backward()
            losses.append(loss.detach())
        norm = clip_grad_norm_(subject.model.parameters(), 0.5)
        clip_grad_value_(subject.model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(norm.detach())
    subject.loss(subject.model, subject.batch).backward()
    return losses


def _packed_saved_tensors(subject: Subject) -> list[Tensor]:
    def pack(saved: Tensor) -> Tensor:
        return saved.to(torch.float64) if saved.dtype is torch.float32 else saved

    def unpack(packed: Tensor) -> Tensor:
        return packed.to(torch.float32) if packed.dtype is torch.float64 else packed

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return train(subject)


def _in_backward(subject: Subject) -> list[Tensor]:
    """Run the optimizer of each parameter in a hook, as soon as its gradient is complete."""
    for parameter in subject.model.parameters():
        single = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, single=single: single.step())
    losses = []
    for _ in range(2):
        subject.model.zero_grad()
        loss = subject.loss(subject.model, subject.batch)
        loss.backward()
        losses.append(loss.detach())
    return losses


# -- torch.func ---------------------------------------------------------------------------------------------------


def _functional(subject: Subject) -> tuple[Any, dict[str, Tensor], Callable[..., Tensor]]:
    model, (x, labels) = subject.model, subject.batch
    weights = {name: one.detach() for name, one in model.named_parameters()}

    def loss(weights: dict[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, weights, (x,)).flatten(0, -2), labels.flatten())

    return (x, labels), weights, loss


def _func_grad(subject: Subject) -> list[Tensor]:
    batch, weights, loss = _functional(subject)
    return list(torch.func.grad(loss)(weights, *batch).values())


def _per_sample(subject: Subject) -> list[Tensor]:
    (x, labels), weights, loss = _functional(subject)
    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
    return list(each(weights, x[:, None], labels[:, None]).values())


def _jvp(subject: Subject) -> list[Tensor]:
    subject.model.eval()  # in training, batch norm writes to its buffers, which functional transforms do not permit
    (x, _), weights, _ = _functional(subject)
    result = torch.func.jvp(lambda x: torch.func.functional_call(subject.model, weights, (x,)), (x,), (torch.ones_like(x),))
    return list(result)


def _jacobians(subject: Subject) -> list[Tensor]:
    (x, _), weights, _ = _functional(subject)

    def run(x: Tensor) -> Tensor:
        return torch.func.functional_call(subject.model, weights, (x,))

    pulled, pull = torch.func.vjp(run, x)
    return [torch.func.jacrev(run)(x[:2]), torch.func.jacfwd(run)(x[:2]), *pull(torch.ones_like(pulled))]


def _hessian(subject: Subject) -> list[Tensor]:
    (x, _), weights, _ = _functional(subject)
    return [torch.func.hessian(lambda one: torch.func.functional_call(subject.model, weights, (one,)).square().sum())(x[0])]


def _ensemble(subject: Subject) -> list[Tensor]:
    models = [copy.deepcopy(subject.model) for _ in range(3)]
    weights, buffers = torch.func.stack_module_state(models)
    run = torch.func.vmap(lambda w, b, x: torch.func.functional_call(subject.model, (w, b), (x,)), (0, 0, None))
    loss = run(weights, buffers, subject.batch[0]).square().mean()
    loss.backward()
    return [loss.detach(), *(one.grad for one in weights.values())]


def _hessian_vector_products(subject: Subject) -> list[Tensor]:
    """Compute products with the Hessian by differentiating twice."""
    loss = subject.loss(subject.model, subject.batch)
    parameters = list(subject.model.parameters())
    first = torch.autograd.grad(loss, parameters, create_graph=True)
    return list(torch.autograd.grad(first, parameters, [torch.ones_like(one) for one in first]))


# -- weights ------------------------------------------------------------------------------------------------------


def _averaged_weights(subject: Subject) -> list[Tensor]:
    average = AveragedModel(subject.model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    losses = []
    for _ in range(2):
        losses += train(subject, 1)
        average.update_parameters(subject.model)
    return [*losses, *(one.detach() for one in average.parameters())]


def _parametrized(parametrize: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model = Perceptron()
        for number in (0, 3):
            parametrize(model.body[number])
        return model

    return make


def _old_weight_norm() -> nn.Module:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _parametrized(torch.nn.utils.weight_norm)()


def _frozen() -> nn.Module:
    model = Perceptron()
    model.body[0].requires_grad_(False)
    return model


def _pruned() -> nn.Module:
    model = Perceptron()
    prune.l1_unstructured(model.body[0], "weight", 0.5)
    return model


def _channels_last(subject: Subject) -> list[Tensor]:
    subject.model.to(memory_format=torch.channels_last)
    subject.batch = (subject.batch[0].to(memory_format=torch.channels_last), subject.batch[1])
    return train(subject)


def _with_dropout(subject: Subject) -> list[Tensor]:
    """Run with dropout, and return bools: equal losses for equal seeds, different losses for different seeds, finite values.

    The values themselves may differ from eager's, so they are not returned.
    """
    losses = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        losses.append(subject.loss(subject.model, subject.batch))
    losses[-1].backward()
    gradients = [one.grad for one in subject.model.parameters() if one.grad is not None]
    subject.model.zero_grad()
    return [torch.stack([losses[0] == losses[1], losses[0] != losses[2], *(one.isfinite().all() for one in (*losses, *gradients))])]


def _embedding(sparse: bool) -> nn.Module:
    return nn.Embedding(20, 8, sparse=sparse)


def _bag() -> nn.Module:
    return nn.EmbeddingBag(20, 8, mode="mean", sparse=True)


ENTRIES = (
    *(_optimizer(name, options) for _, name, options in _optimizer_forms()),
    feature("LBFGS", _lbfgs),
    feature("SparseAdam on sparse gradients", _sparse, partial(_embedding, True), _words),
    feature("SGD and Adagrad on sparse gradients of bags", _sparse_bags, _bag, _words),
    feature("AdamW, learning rate in a tensor, scheduled", _scheduled),
    feature("autocast bfloat16", partial(_autocast, dtype=torch.bfloat16)),
    feature("autocast bfloat16, convolutions", partial(_autocast, dtype=torch.bfloat16), Convolutional, _pictures),
    feature("autocast bfloat16, attention", partial(_autocast, dtype=torch.bfloat16), Tied, _words),
    feature("autocast float16", partial(_autocast, dtype=torch.float16)),
    feature("gradient scaling", _scaled),
    feature("all in bfloat16", _in_dtype(torch.bfloat16)),
    feature("all in float64", _in_dtype(torch.float64)),
    feature("checkpoint", partial(_checkpointed, reentrant=False)),
    feature("checkpoint, reentrant", partial(_checkpointed, reentrant=True)),
    feature("checkpoint in segments", _in_segments),
    feature("gradients accumulated and clipped", _accumulated),
    feature("saved tensors packed", _packed_saved_tensors),
    feature("optimizer in the backward pass", _in_backward),
    feature("func: grad", _func_grad),
    feature("func: vmap of grad", _per_sample),
    feature("func: vmap of grad, attention", _per_sample, Tied, _words),
    feature("func: jvp", _jvp),
    feature("func: jvp, convolutions", _jvp, Convolutional, _pictures),
    feature("func: vjp, jacrev, jacfwd", _jacobians),
    feature("func: hessian", _hessian),
    feature("func: an ensemble", _ensemble),
    feature("hessian-vector products", _hessian_vector_products),
    feature("hessian-vector products, convolutions", _hessian_vector_products, Convolutional, _pictures),
    feature("moving average of the weights", _averaged_weights, Convolutional, _pictures),
    feature("weight norm", None, _parametrized(parametrizations.weight_norm)),
    feature("weight norm, by hooks", None, _old_weight_norm),
    feature("spectral norm", None, _parametrized(parametrizations.spectral_norm)),
    feature("orthogonal weights", None, _parametrized(parametrizations.orthogonal)),
    feature("frozen weights", None, _frozen),
    feature("pruned weights", None, _pruned),
    feature("channels last", _channels_last, Convolutional, _pictures),
    feature("tied weights", None, Tied, _words),
    feature("dropout on", _with_dropout, partial(Tied, 0.5), _words),
)
