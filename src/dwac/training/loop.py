"""The training loop, for every network and both heads.

history = train(model, x, y, validation=(x_val, y_val))
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import IdError, LabelError, ProcessError
from dwac.nn.batches import Inputs, inputs_of, move_to
from dwac.nn.heads import Model, WeightedAverage, evaluating
from dwac.nn.ranks import sharing
from dwac.training.rows import check_data, check_weights
from dwac.training.run import Settings, TrainingRun, tables_of
from dwac.training.shared_run import SharedRun
from dwac.training.validation import fit_balance, fit_look_alikes, fit_raw_features, fit_scale, vote_factors

logger = logging.getLogger(__name__)


def train(
    model: Model,
    x: Tensor | Inputs,
    y: Tensor,
    *,
    validation: tuple[Tensor | Inputs, Tensor] | None = None,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
    class_weights: Sequence[float] | None = None,
    augment: Callable[[Inputs, torch.Generator], Inputs] | None = None,
    rescale: bool = False,
    raw_features: bool = False,
    look_alikes: bool = False,
    block_rows: int | None = None,
    remembered: Tensor | None = None,
    checkpoint: str | Path | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    on_batch: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Train a model on tensors x (n, …) and y (n,), leave it remembering them, and return the history.

    With validation data, training stops after `patience` epochs without a lower validation loss, and the best weights
    are restored. Without it, or with a patience of 0, all epochs run and the last weights are kept. The history has one
    row per epoch: training loss, seconds, and validation loss and accuracy. For validation at most a few thousand
    examples vote, a new sample in each epoch; with `rescale`, at the best of a few scales of the embeddings.

    Ctrl-C ends training and keeps the best weights so far; without validation data, the current weights.
    `history.attrs["ended"]` says why it ended: "finished", "stopped early" or "interrupted".

    Args:
        model: `WeightedAverage` or `SoftmaxTwin`.
        x: inputs, or a tuple of them, one per argument of the backbone; they are moved to the model's device, unless
            `block_rows` is given.
        y: labels.
        validation: (x, y) that are not trained on.
        ids: (n,) unique whole numbers that name the references; by default 0 … n-1.
        weights: (n,) weights of the examples in the loss; votes ignore them.
        class_weights: (K,) factors on the votes of each class; validation applies them.
        augment: varies the inputs of a batch at random, with the given generator.
        rescale: afterwards, multiply the embeddings by the factor that makes the validation loss lowest (`fit_scale`).
        raw_features: with `rescale`, also fit the weight of raw features (`fit_raw_features`).
        look_alikes: with `rescale`, let very near voters count more, if that lowers the validation loss
            (`fit_look_alikes`).
        block_rows: leave x where it is, such as in a memory-mapped file larger than memory, and read it in blocks of
            this many neighbouring rows: 8 blocks at a time, drawn at random, are held in memory and shuffled (see
            `dwac.training.rows`). By default x is moved to the model's device and shuffled as a whole. Labels, weights
            and ids are held in memory, and so are the embeddings of all rows that will vote.
        remembered: (m,) numbers of the rows that will vote, also in `rescale` and later fits; by default all.
        checkpoint: a file that is written after each epoch. Training with the same model, data and settings resumes
            from it exactly. It is removed when training is done.
        on_epoch: called with each row of the history, e.g. to show progress.
        on_batch: called with the number of batches done and the number of batches in the epoch.
        settings: epochs: the maximum number of passes (50). batch_size: examples per step; for `WeightedAverage` they
            vote on one another (128). learning_rate: the peak of AdamW's one-cycle schedule (1e-3). weight_decay:
            AdamW's (1e-4). beta2: AdamW's, for the running mean of squares; lower if most features are rare (0.999).
            patience: epochs without improvement before stopping; 0: never (10). mixed_precision: compute the backbone
            in bfloat16 (False). compiled: on a GPU, record a step once and replay it as a CUDA graph; the backbone's
            control flow must not depend on its input (False). seed: for shuffling and augmentation; seed torch for
            initial weights and dropout (0).
    """
    unknown = set(settings) - set(Settings.__dataclass_fields__)
    if unknown:
        raise TypeError(f"train() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    options = Settings(**settings)
    inputs = inputs_of(x)
    check_data(inputs, y, model.n_classes, "training", least=2)
    if ids is not None:
        ids = torch.as_tensor(ids)
        if ids.shape != (len(y),) or len(ids.unique()) < len(ids):
            shape = tuple(ids.shape)
            raise IdError(f"ids must be {len(y)} different whole numbers; got shape {shape} or repeated ones")
    if block_rows is not None:
        checks.positive_int(block_rows, "block_rows")
    if weights is not None:
        check_weights(weights, len(y))
    held_out = None
    if validation is not None:
        held_out = (inputs_of(validation[0]), validation[1])
        check_data(held_out[0], held_out[1], model.n_classes, "validation", least=1)
        unseen = set(held_out[1].unique().tolist()) - set(y.unique().tolist())
        if unseen and not tables_of(model):
            raise LabelError(f"validation has class {min(unseen)}, of which training has no example")
    if block_rows is None:
        inputs = move_to(inputs, model.device)
        held_out = None if held_out is None else (move_to(held_out[0], model.device), held_out[1])
    y = y.to(model.device)
    weights = None if weights is None else weights.to(model.device, torch.float32)
    with torch.no_grad(), evaluating(model):  # initialise lazy layers before the optimizer is built
        model.embed(move_to(tuple(part[:2] for part in inputs), model.device))
    if isinstance(model, WeightedAverage):
        model.raw_feature_weight = 0.0  # reset after an earlier training
    factors = vote_factors(model, class_weights)
    with sharing() as ranks:
        arguments = (model, inputs, y, weights, factors, augment, rescale, held_out, options, block_rows)
        run = TrainingRun(*arguments) if ranks is None else SharedRun(*arguments, ranks=ranks)
        try:
            _train(run, checkpoint, on_epoch, on_batch)
            if remembered is not None:
                run.keep(remembered)
                ids = None if ids is None else ids[remembered]
            run.remember(ids)
            if rescale and held_out is not None:
                fit_balance(model, *held_out, class_weights=class_weights)
                fit_scale(model, *held_out, class_weights=class_weights)
                if raw_features:
                    fit_raw_features(model, run.x, *held_out, class_weights=class_weights)
                if look_alikes:
                    fit_look_alikes(model, *held_out, class_weights=class_weights)
        except ProcessError as error:
            raise ProcessError(f"{error}; {_how_to_resume(run, checkpoint)}") from error
    model.eval()
    if checkpoint is not None and run.ended != "interrupted" and run.first:
        Path(checkpoint).unlink(missing_ok=True)
    history = pd.DataFrame(run.rows)
    history.attrs["ended"] = run.ended
    return history


def _train(
    run: TrainingRun,
    checkpoint: str | Path | None,
    on_epoch: Callable[[dict[str, Any]], None] | None,
    on_batch: Callable[[int, int], None] | None,
) -> None:
    """Run all epochs, starting from the checkpoint; then restore the best weights."""
    with run.interruptible():
        if checkpoint is not None:
            run.resume(checkpoint)
        try:
            for row in run.epochs(on_batch):
                logger.debug("epoch %s", row)
                run.finish_epoch(row, on_epoch, checkpoint)
        except KeyboardInterrupt:
            if not run.rows:
                raise  # nothing to keep yet
            run.ended = "interrupted"
            if run.first:
                logger.warning("training was interrupted after %s epochs; the best model so far is kept", len(run.rows))
    run.restore_best()


def _how_to_resume(run: TrainingRun, checkpoint: str | Path | None) -> str:
    """A message: what an interrupted training keeps, and how to continue it."""
    if checkpoint is None:
        return "nothing of the training is kept; give checkpoint=… to be able to resume it"
    if not Path(checkpoint).exists():
        return f"no epoch was finished, so there is no checkpoint {checkpoint} yet; start again"
    epochs = f"{len(run.rows)} epoch{'s' * (len(run.rows) != 1)}"
    return f"{checkpoint} holds {epochs}; train again with it, with any number of processes, to go on"
