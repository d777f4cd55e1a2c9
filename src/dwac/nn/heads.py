"""Heads: any network as a deep weighted averaging classifier, or as its softmax twin.

model = WeightedAverage(backbone, n_classes=10)
loss = model.loss(x, y); loss.backward()     # in your own training loop
model.eval(); model.remember(loader)         # embed the training data as the reference set
log_p = model(x)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from dwac import _checks as checks
from dwac.errors import EmptyReferenceError, IdError, InputError, NotRememberedError, ShapeError
from dwac.kernels import get_kernel
from dwac.nn.ensemble import (
    Ensemble,
    EnsembleLogits,
    at_least_float32,
    cross_entropy,
    features_of,
    join_members,
    map_members,
    split_members,
)
from dwac.nn.loss import (
    Support,
    check_finite,
    check_labels,
    check_tensors,
    check_weights,
    leave_one_out_loss,
    weighted_mean,
)
from dwac.nn.ranks import Share, Whole
from dwac.nn.tiles import Frozen
from dwac.reference import ReferenceSet
from dwac.reference.references import put_voters

_LAZY = torch.nn.parameter.UninitializedParameter


class _Head(nn.Module):
    """h = W f(x) + b: any backbone f, then a linear map to a short embedding; for an `Ensemble`, one per network."""

    def __init__(self, backbone: nn.Module, n_classes: int, embedding_size: int | None, n_features: int | None) -> None:
        super().__init__()
        self.n_classes = checks.positive_int(n_classes, "n_classes")
        size = self.n_classes if embedding_size is None else checks.positive_int(embedding_size, "embedding_size")
        self.ensemble_size = len(backbone) if isinstance(backbone, Ensemble) else 1
        self.embedding_size = size = self.ensemble_size * size
        self.backbone = backbone
        if n_features is not None:
            self.embedding: nn.Linear = nn.Linear(checks.positive_int(n_features, "n_features"), size)
        else:
            with warnings.catch_warnings():  # torch still calls lazy layers new
                warnings.filterwarnings("ignore", "Lazy modules are a new feature")
                self.embedding = nn.LazyLinear(size)
        self._frozen: Frozen | None = None

    def frozen(self) -> Frozen | None:
        """h in tiles of rows, for predictions on a CPU; None if the backbone cannot be frozen.

        It is made again when weights have changed.
        """
        weight, held, backbone = self.embedding.weight, self._frozen, cast(Any, self.backbone)
        if torch.is_autocast_enabled("cpu"):
            return None
        if held is not None and held.current and held.stamps[0][0] is weight:
            return held
        if torch.compiler.is_compiling():
            return None
        self._frozen = None
        if weight.device.type == "cpu" and hasattr(backbone, "freeze") and not isinstance(weight, _LAZY):
            with torch.no_grad():
                made: Frozen | None = backbone.freeze(weight, self.embedding.bias)
            self._frozen = None if made is None else made.stamped([weight, *self.parameters()])
        return self._frozen

    def train(self, mode: bool = True) -> Self:
        """Training mode, in which weights change."""
        if mode:
            self._frozen = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_frozen": None}

    def _load_from_state_dict(self, *args: Any) -> None:
        self._frozen = None
        super()._load_from_state_dict(*args)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    @property
    def vector_size(self) -> int:
        """The length of the vectors that `embed` returns."""
        return self.embedding_size

    @property
    def first_network(self) -> Any:
        """The backbone; for an ensemble, its first network."""
        return self.backbone.first if isinstance(self.backbone, Ensemble) else self.backbone

    def embed(self, x: Any) -> Tensor:
        """h of a batch, (n, embedding_size). x: a tensor, a tuple of arguments or a mapping of named ones."""
        predicts = not (self.training or torch.is_grad_enabled() or isinstance(x, Mapping))
        if predicts and (frozen := self.frozen()) is not None:
            return frozen(_arguments_of(x))
        features = features_of(self.backbone(**x) if isinstance(x, Mapping) else self.backbone(*_arguments_of(x)))
        ensemble = isinstance(self.backbone, Ensemble)
        if features.ndim != 2 + ensemble:
            raise ShapeError(
                f"the backbone must return shape (n, features); got {tuple(features.shape)}; "
                "end it with nn.Flatten() or a pooling layer"
            )
        if not isinstance(self.embedding, nn.LazyLinear) and features.shape[-1] != self.embedding.in_features:
            raise ShapeError(
                f"the backbone must return {self.embedding.in_features} features; got {features.shape[-1]}; "
                "after convert(), name the network's output layer with layer=…"
            )
        # Distances are taken between embeddings, so h is never computed in autocast's half precision.
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(self.embedding.weight.dtype)
            if not ensemble:
                return self.embedding(features)  # type: ignore[no-any-return]
            if isinstance(self.embedding, nn.LazyLinear):
                self.embedding(features[:1, 0])  # initialises the lazy layer
            return join_members(map_members(features, self.embedding.weight, self.embedding.bias))

    @torch.no_grad()
    def scale_embeddings(self, factor: float) -> None:
        """Multiply every h by factor > 0, in place, so that a temperature becomes part of the model.

        The embedding layer's weight and bias are scaled, and the references with them, so that votes, explanations and
        probabilities still add up. With the gaussian kernel all log-weights are multiplied by factor²: a temperature T
        is factor = 1/√T. For `SoftmaxTwin` the logits are multiplied by factor, in the layer that computes them: a
        temperature T is factor = 1/T.
        """
        if isinstance(factor, bool) or not isinstance(factor, int | float | np.number) or not 0 < factor < np.inf:
            raise InputError(f"factor must be a finite number above 0; got {factor!r}")
        self._scale(float(factor))

    @torch.no_grad()
    def scale_members(self, factors: Tensor) -> None:
        """Multiply the output of each network of an ensemble, h_m or logits, by its own factor, (M,), in place."""
        for parameter in self._last:
            parameter.view(self.ensemble_size, -1).mul_(factors.to(parameter)[:, None])

    @property
    def _last(self) -> list[nn.Parameter]:
        """The parameters of the last layer, which is scaled."""
        return list(self.embedding.parameters())

    def _scale(self, factor: float) -> None:
        if isinstance(self.embedding, nn.LazyLinear):
            raise InputError(
                "the embedding layer must have a size before it can be scaled; run one batch through the model first"
            )
        for parameter in self._last:
            parameter.mul_(factor)


class WeightedAverage(_Head):
    """A deep weighted averaging classifier: every prediction is a vote of remembered examples.

    Args:
        backbone: any module that returns (n, features), or a Hugging Face-style output with logits.
        n_classes: K.
        embedding_size: |h|; by default K, as in the paper.
        kernel: "gaussian" (the paper's), "laplace" or "inverse_quadratic".
        penalty: weight of mean ‖h‖² in the loss; a small one keeps embeddings from growing without bound.
        auxiliary_weight: weight of an auxiliary loss, the cross-entropy of a softmax over h. It helps training if
            images vary a lot, and takes no part in predictions.
        n_features: the backbone's number of features; by default taken from the first batch.
        likeness: (K, K) how much a vote for one label counts for another, in training; see `leave_one_out_loss`.
        averaged: (K, B) values to average for each label, if labels are not classes. Models are judged by these
            averages, and trained on them if labels have no likeness.

    >>> model = WeightedAverage(nn.Linear(4, 8), n_classes=3)
    >>> x, y = torch.randn(12, 4), torch.arange(12) % 3
    >>> model.loss(x, y).backward()
    >>> model.remember([(x, y)])
    >>> model(x).exp().sum(dim=1).allclose(torch.ones(12))
    True
    """

    likeness: Tensor | None
    averaged: Tensor | None

    # Differs from the paper, which has neither the penalty on ‖h‖² (docs/decisions/0003) nor the auxiliary loss (0009).
    def __init__(
        self,
        backbone: nn.Module,
        n_classes: int,
        embedding_size: int | None = None,
        *,
        kernel: str = "gaussian",
        penalty: float = 1e-3,
        auxiliary_weight: float = 0.0,
        n_features: int | None = None,
        likeness: Tensor | None = None,
        averaged: Tensor | None = None,
    ) -> None:
        super().__init__(backbone, n_classes, embedding_size, n_features)
        self.register_buffer("likeness", _as_table(likeness, self.n_classes), persistent=False)
        self.register_buffer("averaged", _as_table(averaged, self.n_classes), persistent=False)
        for name, weight in (("penalty", penalty), ("auxiliary_weight", auxiliary_weight)):
            if not isinstance(weight, int | float | np.number) or not 0 <= weight < float("inf"):
                raise InputError(f"{name} must be a finite number of at least 0; got {weight!r}")
        self.kernel = get_kernel(kernel).name
        self.penalty, self.auxiliary_weight = float(penalty), float(auxiliary_weight)
        self.raw_feature_weight = 0.0  # weight of raw features in distances, fitted by dwac.training
        if auxiliary_weight:
            size = self.embedding_size // self.ensemble_size
            self.auxiliary_head = EnsembleLogits(self.ensemble_size, size, self.n_classes, linear=True)
        self._references: ReferenceSet | None = None

    def loss(
        self,
        x: Any,
        y: Tensor,
        *,
        ids: Tensor | None = None,
        support: Support | None = None,
        weights: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """Leave-one-out loss of a batch, plus auxiliary loss and penalty; arguments as for `leave_one_out_loss`.

        The penalty ignores the weights: every h votes, whatever the weight of its loss.

        share: x, y, ids and weights are this rank's part of a batch that several processes share, and so is the result:
        the sum of all parts, and of their gradients, is that of the whole batch. Every rank's rows vote on the rows of
        all ranks. See `dwac.nn.ranks`.
        """
        h = super().embed(x)
        check_labels(y, len(h), self.n_classes)
        if share is not None:
            return self._shared_loss(h, y, ids, support, weights, share)
        if support is not None:
            check_tensors(**support._asdict())
            check_labels(support.y, len(support.h), self.n_classes)
        vote = self._vote(h, y, ids, support, weights)
        if self.auxiliary_weight:
            vote = vote + self.auxiliary_weight * self.auxiliary_head.loss(h, y, weights)
        if self.penalty == 0:
            return vote
        return vote + self._norm(h, len(h))

    def _norm(self, h: Tensor, n: int) -> Tensor:
        """The penalty on these rows of a batch of n."""
        return _SquaredNorm.apply(at_least_float32(h), self.penalty / n)  # type: ignore[no-untyped-call,no-any-return]

    def _shared_loss(
        self, h: Tensor, y: Tensor, ids: Tensor | None, support: Support | None, weights: Tensor | None, share: Share
    ) -> Tensor:
        """This rank's part of the loss: its rows are voted on by those of all ranks."""
        if support is not None:
            raise InputError("a batch that several processes share takes no support; leave it out")
        check_weights(weights, len(h))
        whole = share.gather(h, y, ids, weights)
        if share.empty:  # its zeros still take part in the gradients
            auxiliary = self.auxiliary_head.loss(h, y) if self.auxiliary_weight else h.sum()
            return 0.0 * (whole.h.sum() + auxiliary)
        own, others = share.own, [slice(share.own.start), slice(share.own.stop, None)]
        names = torch.arange(share.n, device=y.device) if whole.ids is None else whole.ids
        voters = Support(*(torch.cat([part[rows] for rows in others]) for part in (whole.h, whole.y, names)))
        counts = self._counts(whole)
        vote = self._vote(whole.h[own], y, names[own], voters, weights) * part_of(counts, own)
        if self.auxiliary_weight:
            each = torch.ones_like(counts) if whole.weights is None else whole.weights
            part = part_of(each.to(counts), own)
            vote = vote + self.auxiliary_weight * part * self.auxiliary_head.loss(h, y, weights)
        return vote if self.penalty == 0 else vote + self._norm(h, share.n)

    def _counts(self, whole: Whole) -> Tensor:
        """(n,): how much each row's loss counts: 0 if no other row could vote for its label."""
        y, ids = whole.y, whole.ids
        classes = self.likeness is None and self.averaged is None
        if ids is not None:
            votes = ids[:, None] != ids
            has_voters = (votes & (y[:, None] == y) if classes else votes).any(dim=1)
        elif classes:
            has_voters = y.new_zeros(self.n_classes).index_add_(0, y, torch.ones_like(y))[y] > 1
        else:
            has_voters = torch.full_like(y, len(y) > 1, dtype=torch.bool)
        counts = has_voters.to(torch.promote_types(whole.h.dtype, torch.float32))
        return counts if whole.weights is None else counts * whole.weights.to(counts)

    def loss_apart(self, h: Tensor, y: Tensor, *, weights: Tensor | None = None) -> Tensor:
        """The loss of an ensemble in which each member has its own batch: h (M, n, d), y and weights (M, n)."""
        vote = leave_one_out_loss(h, y, kernel=self.kernel, weights=weights, **self._tables)
        return vote + self._norm(h, h.shape[0] * h.shape[1])

    def embed(self, x: Any) -> Tensor:
        """h of a batch; [h, λ z] if raw features z have a weight λ, so that voters are near in z too."""
        h = super().embed(x)
        if self.raw_feature_weight:
            h = torch.cat([h, self.raw_feature_weight * self.raw_features(x)], dim=1)
        return h

    def raw_features(self, x: Any) -> Tensor:
        """z of a batch, (n, n_raw_features)."""
        z: Tensor = self.first_network.raw_features(*_arguments_of(x))
        return z.to(self.embedding.weight)

    def compared_features(self, x: Any) -> Tensor:
        """The features by which examples are compared to see whether one is unlike all others, (n, q); see `Known`."""
        z: Tensor = self.first_network.compared_features(*_arguments_of(x))
        return z.to(self.embedding.weight)

    @property
    def n_compared_features(self) -> int:
        """The number of compared features: 0 for most backbones."""
        return getattr(self.first_network, "n_compared_features", 0)

    @property
    def n_raw_features(self) -> int:
        """The number of raw features of an example: 0 for most backbones."""
        return getattr(self.first_network, "n_raw_features", 0)

    @property
    def vector_size(self) -> int:
        """The length of the vectors that `embed` returns, raw features included."""
        return self.embedding_size + (self.n_raw_features if self.raw_feature_weight else 0)

    @property
    def _tables(self) -> dict[str, Any]:
        """The tables that define what labels mean in the loss."""
        return {"averaged": self.averaged} if self.likeness is None else {"likeness": self.likeness}

    def _vote(
        self, h: Tensor, y: Tensor, ids: Tensor | None, support: Support | None, weights: Tensor | None
    ) -> Tensor:
        """The leave-one-out loss; for an ensemble, the mean of the losses of its networks."""
        options: dict[str, Any] = {"ids": ids, "kernel": self.kernel, "weights": weights, **self._tables}
        if self.ensemble_size == 1:
            return leave_one_out_loss(h, y, support=support, **options)
        if (self.likeness is not None or self.averaged is not None) and ids is None and support is None:
            # All networks at once: launching them one by one would take most of the time.
            members = split_members(h, self.ensemble_size).transpose(0, 1)
            options["weights"] = None if weights is None else weights.expand(self.ensemble_size, -1)
            return leave_one_out_loss(members, y.expand(self.ensemble_size, -1), **options)
        supports = [support] * self.ensemble_size
        if support is not None:
            if support.h.ndim != 2 or support.h.shape[1] != self.embedding_size:
                shape = tuple(support.h.shape)
                raise ShapeError(f"support.h must be (s, {self.embedding_size}), joined as h is; got shape {shape}")
            supports = [support._replace(h=part) for part in split_members(support.h, self.ensemble_size).unbind(1)]
        losses = [
            leave_one_out_loss(part.contiguous(), y, support=extra, **options)
            for part, extra in zip(split_members(h, self.ensemble_size).unbind(1), supports, strict=True)
        ]
        return torch.stack(losses).mean()

    @torch.no_grad()
    def remember(self, loader: Iterable[Any]) -> None:
        """Embed the training data in evaluation mode and keep it as the reference set.

        `loader` yields (x, y) or (x, y, ids) batches. Ids are whole numbers; without them examples are numbered in
        order, so do not shuffle. Call this again whenever the weights change: references embedded with other weights
        vote wrongly.
        """
        device = self.device
        with evaluating(self):
            parts = [self._embed_batch(_move_to(x, device), y, ids) for x, y, ids in map(_split_batch, loader)]
        if not parts:
            raise EmptyReferenceError("remember needs at least one batch of (x, y); the loader yielded none")
        h, y, ids = zip(*parts, strict=True)
        if any(part is None for part in ids) and not all(part is None for part in ids):
            raise IdError("either all batches must have ids or none")
        names = None if ids[0] is None else torch.cat(ids).tolist()
        self._references = ReferenceSet(torch.cat(h), torch.cat(y), names, self.n_classes, self.kernel)

    def _embed_batch(self, x: Any, y: Any, ids: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Embeddings, labels and ids of one batch."""
        h = self.embed(x)
        labels = torch.as_tensor(checks.class_labels(y, "y", n=len(h), n_classes=self.n_classes))
        return h, labels, None if ids is None else torch.as_tensor(_check_ids(ids, len(h)))

    def _scale(self, factor: float) -> None:
        refs = self._references
        scaled = None if refs is None else checks.float_tensor(refs.embeddings * factor, "the scaled embeddings")
        super()._scale(factor)
        self.raw_feature_weight = factor * self.raw_feature_weight
        if refs is not None and scaled is not None:
            put_voters(refs, replace(refs.voters, embeddings=scaled))  # in place: others may hold this set

    @torch.no_grad()
    def scale_members(self, factors: Tensor) -> None:
        """Multiply each network's h_m by its own factor, (M,), in place, also in the references."""
        super().scale_members(factors)
        self.references = self.references.replaced(embeddings=self.scale_parts(self.references.embeddings, factors))

    def scale_parts(self, h: Tensor, factors: Tensor) -> Tensor:
        """Embeddings in which each network's h_m is multiplied by its factor."""
        each = factors.to(h).repeat_interleave(self.embedding_size // self.ensemble_size)
        return h * F.pad(each, (0, h.shape[1] - len(each)), value=1.0)

    @property
    def references(self) -> ReferenceSet:
        """The references that vote. Editing them (add, remove, relabel) changes predictions at once."""
        if self._references is None:
            raise NotRememberedError(
                "the model needs references before it can predict; call remember(loader) with training data"
            )
        return self._references

    @references.setter
    def references(self, references: ReferenceSet) -> None:
        self._references = references

    def log_class_weights(self, x: Any) -> Tensor:
        """log Σ_i I(y_i=k) w(h, h_i), (n, K) float64; differentiable in x."""
        references = self.references
        return references.log_class_weights(self.embed(x))  # type: ignore[no-any-return]

    def forward(self, x: Any) -> Tensor:
        """log P(y=k given x), (n, K)."""
        return torch.log_softmax(self.log_class_weights(x), dim=1).float()

    def support(self, size: int, *, generator: torch.Generator | None = None) -> Support:
        """A random sample of the references, as extra voters for the loss."""
        references = self.references
        size = min(checks.positive_int(size, "size"), len(references))
        rows = torch.randperm(len(references), generator=generator)[:size].to(self.device)
        ids = _ids_of(references).to(self.device)
        h = references.embeddings[rows, : self.embedding_size]
        return Support(h, references.labels[rows], ids[rows])

    # The references move with the weights: to other devices, and in the state dict as tensors.

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> WeightedAverage:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._references is not None and self._references.embeddings.device != self.device:
            put_voters(self._references, self._references.voters.to(self.device))
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._references is not None:
            destination[prefix + "ref_h"] = self._references.embeddings
            destination[prefix + "ref_y"] = self._references.labels
            destination[prefix + "ref_ids"] = _ids_of(self._references)
            destination[prefix + "raw_feature_weight"] = torch.tensor(self.raw_feature_weight)
            if self._references.voters.look_alikes is not None:
                destination[prefix + "look_alikes"] = torch.tensor(
                    self._references.voters.look_alikes, dtype=torch.float64
                )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        parts = [state_dict.pop(prefix + name, None) for name in ("ref_h", "ref_y", "ref_ids")]
        self.raw_feature_weight = float(state_dict.pop(prefix + "raw_feature_weight", 0.0))
        near = state_dict.pop(prefix + "look_alikes", None)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if any(part is None for part in parts):
            self._references = None  # the weights are new: the old references do not fit them
            return
        h, y, ids = parts
        references = ReferenceSet(h, y, ids.tolist(), self.n_classes, self.kernel).to(self.device)
        self._references = references if near is None else references.replaced(look_alikes=tuple(near.tolist()))


class _SquaredNorm(torch.autograd.Function):
    """weight Σ ‖h‖², with fewer kernel launches on a GPU than plain operations."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: float) -> Tensor:
        ctx.save_for_backward(h)
        ctx.weight = weight
        flat = h.reshape(-1)
        return weight * torch.dot(flat, flat)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (h,) = ctx.saved_tensors
        return h * (2 * ctx.weight * grads[0]), None


class SoftmaxTwin(_Head):
    """The same network with a softmax instead of the vote, behind the same interface, for comparison.

    If |h| = K (the default), h are the logits; otherwise a linear layer maps h to them.

    targets: (K, T) numbers or booleans that the labels stand for. The network then has T outputs: numbers are fitted by
    squared error, booleans by a logistic function each.

    >>> twin = SoftmaxTwin(nn.Linear(4, 8), n_classes=3, n_features=8)
    >>> twin(torch.zeros(2, 4)).detach().exp().sum(dim=1).round(decimals=4), isinstance(twin, Model)
    (tensor([1., 1.]), True)
    """

    targets: Tensor | None

    def __init__(
        self,
        backbone: nn.Module,
        n_classes: int,
        embedding_size: int | None = None,
        *,
        n_features: int | None = None,
        targets: Tensor | None = None,
    ) -> None:
        super().__init__(backbone, n_classes, embedding_size, n_features)
        self.register_buffer("targets", _as_table(targets, self.n_classes), persistent=False)
        size, outputs = self.embedding_size // self.ensemble_size, self.n_outputs
        self.logits: nn.Module = nn.Identity() if size == outputs else nn.Linear(size, outputs)
        if self.ensemble_size > 1:
            self.logits = EnsembleLogits(self.ensemble_size, size, outputs, linear=size != outputs)

    @property
    def n_outputs(self) -> int:
        """How many numbers the network computes for an example."""
        return self.n_classes if self.targets is None else self.targets.shape[1]

    def loss(
        self,
        x: Any,
        y: Tensor,
        *,
        ids: Tensor | None = None,
        support: Support | None = None,
        weights: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """Cross-entropy of a batch, or the loss of its targets: Σ_j weight_j loss_j / Σ_j weight_j, or 0 if all are 0.

        ids and support are ignored.
        """
        del ids, support
        if share is not None:
            loss = self.loss(x, y, weights=weights)
            if share.empty:
                loss = 0.0 * loss
            if weights is None:
                return loss * (share.size / share.n)
            own = torch.zeros_like(weights) if share.empty else weights.detach()
            total = share.ranks.sum(own.sum().double())
            return loss * (own.sum() / total.clamp_min(torch.finfo(weights.dtype).tiny)).to(loss)
        h = self.embed(x)
        check_labels(y, len(h), self.n_classes)
        check_finite(h, "the batch's embeddings")
        check_weights(weights, len(h))
        if self.targets is not None:
            each = self.logits.each(h) if isinstance(self.logits, EnsembleLogits) else self.logits(h)[:, None]
            losses = self.target_losses(at_least_float32(each).transpose(0, 1), y).mean(dim=0)
            return losses.mean() if weights is None else weighted_mean(losses, weights.to(losses.dtype))
        if isinstance(self.logits, EnsembleLogits):
            return self.logits.loss(h, y, weights)
        return cross_entropy(at_least_float32(self.logits(h)), y, weights)

    def target_losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(…, n): squared error, or logistic loss, of outputs (…, n, T) for labels (n,), averaged over T."""
        assert self.targets is not None
        targets_of_y = self.targets[y].to(outputs.dtype).expand_as(outputs)
        if self.targets.dtype == torch.bool:
            return F.binary_cross_entropy_with_logits(outputs, targets_of_y, reduction="none").mean(dim=-1)
        return (outputs - targets_of_y).square().mean(dim=-1)

    @property
    def _last(self) -> list[nn.Parameter]:
        """The parameters of the layer that computes the logits."""
        return list(self.logits.parameters()) or super()._last

    def remember(self, loader: Iterable[Any]) -> None:
        """A softmax needs no references: this does nothing."""

    def log_class_weights(self, x: Any) -> Tensor:
        """The logits, (n, K) float64, in place of the votes; their softmax is the probability. With targets, (n, T)."""
        return self.logits(self.embed(x)).double()  # type: ignore[no-any-return]

    def forward(self, x: Any) -> Tensor:
        """log P(y=k given x), (n, K); with targets, the outputs (n, T)."""
        votes = self.log_class_weights(x)
        return (votes if self.targets is not None else torch.log_softmax(votes, dim=1)).float()


Model = WeightedAverage | SoftmaxTwin


def part_of(counts: Tensor, rows: slice) -> Tensor:
    """The share of these rows in all counts."""
    return counts[rows].sum() / counts.sum().clamp_min(torch.finfo(counts.dtype).tiny)


def _as_table(table: Tensor | None, n_classes: int) -> Tensor | None:
    """(K, B), one row per label."""
    if table is None:
        return None
    check_tensors(averaged=table)
    if table.ndim != 2 or len(table) != n_classes or table.shape[1] == 0:
        raise ShapeError(f"averaged must have one row per label: ({n_classes}, B) required; got {tuple(table.shape)}")
    return table


def _arguments_of(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def _split_batch(batch: Any) -> tuple[Any, Any, Any]:
    """(x, y, ids or None) of a batch."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        parts = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise InputError(f"a batch must be (x, y) or (x, y, ids); got a {type(batch).__name__}{parts}")
    x, y = batch[0], batch[1]
    return x, y, batch[2] if len(batch) == 3 else None


def _move_to(x: Any, device: torch.device) -> Any:
    """The inputs of a batch on a device, however nested."""
    if isinstance(x, Tensor):
        return x.to(device)
    if isinstance(x, Mapping):
        return {name: _move_to(value, device) for name, value in x.items()}
    if isinstance(x, tuple | list):
        return tuple(_move_to(value, device) for value in x)
    return x


def _check_ids(ids: Any, n: int) -> NDArray[np.int64]:
    """Row ids as whole numbers, (n,); an error if they are not."""
    values = np.asarray(ids.cpu() if isinstance(ids, Tensor) else ids)
    if values.shape != (n,):
        raise ShapeError(f"ids must have one entry per row: shape ({n},) required; got {values.shape}")
    if values.dtype.kind not in "iu":
        odd = next((value for value in values.tolist() if type(value) is not int), values.dtype)
        raise IdError(f"ids of a network's references must be whole numbers; got {odd!r}; number the examples instead")
    return values.astype(np.int64)


def _ids_of(references: ReferenceSet) -> Tensor:
    return torch.as_tensor(_check_ids(references.ids, len(references)))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the context; afterwards every layer is back in its own mode."""
    training = [module for module in model.modules() if module.training]
    if training:
        model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
