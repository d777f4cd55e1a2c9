"""Fitting on more rows than memory holds.

Rows are read twice, in batches. The first pass summarises columns and target, and keeps a sample and the held-out rows
(`survey`). The second encodes all training rows into files (`spool`), from which the network is trained. A sample of
the rows is remembered; representatives are chosen from it, and each row counts for the nearest one of its own label.

    clf.fit(pyarrow.dataset.dataset("rows/"), "income")        # or "rows/*.parquet", "s3://bucket/rows/"
    clf.fit((frame for frame in frames), "income")             # batches, written to a file first

Memory holds one Parquet row group, the sample (200,000 rows), the held-out rows (at most 100,000 for each part), and
per row 8 bytes for its label and about 24 more for sorting by label. The disk holds the encoded rows, 4 bytes per
number and 8 per category, in TMPDIR or beside the checkpoint, during the fit. Fewer than 4,000 rows, or
30,000 of a table without settings that say how to train, are read into memory, and fitted as usual. By default the
model is small: see `voters`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac._machine import memory
from dwac.encoders import Encoder, TabularEncoder, choose
from dwac.errors import IdError, InputError
from dwac.estimator.condensing import Condenser, agreement_of, count_votes, shared_votes, should_condense
from dwac.estimator.editing import keep
from dwac.estimator.fit.network import (
    EncodedRows,
    TrainingRows,
    class_weights_of,
    encoder_for_target,
    ignore_columns,
    name_voters,
    new_model,
    own_seed,
    random_generator,
    train,
)
from dwac.estimator.fit.passes import Spool, StreamParts, Survey, located, parts_of, survey
from dwac.estimator.fit.streams import Chunk, Stream, join_chunks
from dwac.estimator.fitted import Fitted, StreamReport
from dwac.estimator.held_out import HeldOutRows
from dwac.estimator.observed import features_of
from dwac.estimator.preparation import Examples, balanced, finite_weights, read_known, read_within
from dwac.estimator.settings import FitSettings, device_of
from dwac.metrics import Agreement
from dwac.nn import WeightedAverage, batches
from dwac.nn.batches import Inputs
from dwac.nn.heads import evaluating
from dwac.nn.ranks import sharing_ranks
from dwac.reference import ReferenceSet
from dwac.tasks import Target, read_target
from dwac.tasks.classes import check_class_count, encode_known

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

VOTERS = 100_000  # rows that are remembered, from which representatives are chosen


def fit_stream(settings: FitSettings, stream: Stream, folder: Path) -> Fitted:
    """Train on the rows of a stream; folder: for temporary files."""
    seed = int(random_generator(settings).randint(2**31 - 1))
    draws = np.random.default_rng(seed)
    encoder = _stream_encoder(settings, stream)
    stream = stream if encoder.kind == "tabular" else stream.without_empty_texts()
    parts = StreamParts.draw(stream, settings.validation_size, settings.calibration_size, draws)
    surveyed = survey(stream, parts, draws, table=isinstance(encoder, TabularEncoder), labels=not settings.regression)
    target = _stream_target(settings, surveyed)
    codes = read_known(target, surveyed.sample.y, len(surveyed.sample), strict=True)[0]
    notes = _learn(encoder, surveyed, codes)
    by_class = _stream_class_weights(settings, target, surveyed)
    device = device_of(settings.device)
    with own_seed(seed, device):
        size = settings.ensemble_size or encoder.recipe.networks_on(device)
        model = new_model(settings, encoder, target, size, loss=target.loss(codes)).to(device)
        chosen = _choose_voters(settings, surveyed, codes, draws, size * (settings.embedding_size or 32))
        rows = surveyed.calibration if len(surveyed.calibration) else surveyed.validation
        for chunk in (surveyed.sample if chosen is None else chosen, rows):
            _require_unique(chunk.ids)  # before hours of training, not after
        within = read_within(rows.within, settings.within, rows.X, rows.ids)
        spool = _write_spool(stream, parts, surveyed, encoder, target, by_class, folder)
        held = [_encode(encoder, target, chunk) for chunk in (surveyed.validation, surveyed.calibration)]
        places = None if chosen is None else spool.places(parts.training_numbers(chosen.rows))
        history = _train_spooled(settings, model, encoder, spool, held[0], by_class, seed, places)
    if chosen is None:
        chosen, places = _read_all(stream, parts, spool), np.arange(spool.n)
        _require_unique(chosen.ids)
    inputs = tuple(part[torch.as_tensor(places)] for part in spool.tensors("x"))
    novelty = name_voters(settings, model, encoder, target, _encode(encoder, target, chosen, inputs), by_class)
    validation, calibration = (novelty.hold_out(model, *rows) for rows in held)
    calibration = calibration if len(calibration.y) else validation
    model.references, agreement, note = _represent(settings, model, target, validation, calibration, spool)
    names = model.references.voters.ids
    kept = chosen.X.iloc[chosen.ids.get_indexer(names)].reset_index(drop=True)
    if novelty.known is not None:
        novelty = replace(novelty, known=novelty.known.of(names))
    lines = tuple(line for line in (*parts.notes, *notes, note) if line)
    report = StreamReport(stream.n, surveyed.rows, len(surveyed.sample), len(names), spool.n * spool.row_bytes, lines)
    logger.info("%s", report)
    return Fitted(
        settings=settings,
        encoder=encoder,
        model=model,
        target=target,
        history=history,
        examples=keep(Examples(), encoder, names, _as_read(encoder, kept)),
        novelty=novelty.learn(model.references, validation, calibration, None),
        validation=validation,
        validation_ids=validation.ids,
        calibration=calibration,
        features=features_of(surveyed.sample.X.head(2), encoder),
        within=within,
        stream=report,
        stored_agreement=agreement,
    )


def as_given(settings: FitSettings, stream: Stream, rows: Chunk) -> Any:
    """The rows of a chunk in the form that the encoder expects."""
    kind = choose(settings.encoder, ["text"] if stream.texts else rows.X).kind
    return rows.X.iloc[:, 0].tolist() if kind in ("text", "huggingface") and rows.X.shape[1] == 1 else rows.X


# The first pass


def _stream_encoder(settings: FitSettings, stream: Stream) -> Encoder:
    """The encoder; an error if it cannot be fitted on a sample."""
    probe = pd.DataFrame({name: [0] for name in stream.features})
    encoder = encoder_for_target(settings, choose(settings.encoder, ["text"] if stream.texts else probe))
    if encoder.kind not in ("tabular", "text", "huggingface"):
        raise InputError(
            f"rows that are read in batches must be tables or texts; got encoder={settings.encoder!r:.60} for "
            f"{encoder.kind} data; give images and tensors as a whole: fit(X, y), or train with dwac.nn"
        )
    if encoder.kind != "tabular" and len(stream.features) != 1:
        raise InputError(f"texts must be one column besides the target; got {stream.features}")
    if settings.cross_fit is True:
        raise InputError("cross_fit=True needs all rows in memory; give X and y as a whole, or leave it at 'auto'")
    return ignore_columns(settings, encoder)


def _stream_target(settings: FitSettings, surveyed: Survey) -> Target:
    """The target: the outcomes of all rows, or numbers from a sample of the training rows."""
    if surveyed.outcomes is None:
        n = len(surveyed.sample)
        with located(surveyed.sample.rows):
            return read_target(surveyed.sample.y, n, regression=True).target(np.arange(n))
    values = surveyed.outcomes.values(surveyed.sample.y)
    check_class_count(len(surveyed.outcomes.counts), surveyed.rows)
    n = len(values)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* rows have no label at all")  # these are outcomes, not rows
        return read_target(values, n, regression=False, ordered=settings.ordered).target(np.arange(n))


def _learn(encoder: Encoder, surveyed: Survey, codes: Ints) -> list[str]:
    """Fit the encoder on the results of the first pass; returns its notes."""
    X, n = surveyed.sample.X, len(surveyed.sample)
    if isinstance(encoder, TabularEncoder):
        assert surveyed.table is not None
        with located(surveyed.sample.rows):
            surveyed.table.fit(encoder, X)
        return surveyed.table.notes(n)
    encoder.fit(X.iloc[:, 0].tolist(), codes)
    return [f"words and lengths of texts come from {n:,} of {surveyed.rows:,} training rows"]


def _stream_class_weights(settings: FitSettings, target: Target, surveyed: Survey) -> Floats | None:
    """(K,): class weights from the exact counts of the first pass."""
    by_class = class_weights_of(settings, target, np.arange(target.n_codes))
    if by_class is None or settings.class_weight != "balanced" or surveyed.outcomes is None:
        return by_class
    counts = surveyed.outcomes.counts
    known = encode_known(pd.Series([*counts], dtype=object), len(counts), target.outcomes)
    totals = np.zeros(target.n_codes, dtype=np.int64)
    totals[known] = [*counts.values()]
    return balanced(totals)


def _choose_voters(
    settings: FitSettings, surveyed: Survey, codes: Ints, rng: np.random.Generator, size: int
) -> Chunk | None:
    """The rows to remember: a sample with some rows of every outcome; None for all.

    codes: those of the sample's rows.
    """
    if settings.voters == "all":
        each = float(surveyed.sample.X.memory_usage(deep=True, index=False).sum()) / len(surveyed.sample) + 8 * size
        _require_memory(surveyed.rows, each)
        return None
    most = max(VOTERS, 4 * settings.voters if isinstance(settings.voters, int) else 0)
    sample = surveyed.sample
    if len(sample) > most:
        some = rng.choice(len(sample), most, replace=False)
        absent = ~np.isin(codes, codes[some])
        first = np.unique(np.where(absent, codes, -1), return_index=True)[1]
        sample = sample.take(np.union1d(some, first[absent[first]]))
    if surveyed.rare is None or surveyed.complete:
        return sample
    rare = surveyed.rare.take(~np.isin(surveyed.rare.rows, sample.rows))
    return join_chunks([sample, rare]) if len(rare) else sample


# The second pass


def _encode(encoder: Encoder, target: Target, chunk: Chunk, inputs: Inputs | None = None) -> EncodedRows:
    """Encode rows in memory as tensors and codes."""
    with located(chunk.rows):
        if inputs is None:
            inputs = encoder.transform(_as_read(encoder, chunk.X)) if len(chunk) else ()
        codes, exact = np.zeros(0, np.int64), np.zeros((0, 0))
        if len(chunk):
            codes, exact = read_known(target, chunk.y, len(chunk), strict=True)
    return EncodedRows(inputs, codes, chunk.ids, exact)


def _as_read(encoder: Encoder, frame: pd.DataFrame) -> Any:
    """Rows as the encoder reads them: a table, or a list of texts."""
    return frame if isinstance(encoder, TabularEncoder) else frame.iloc[:, 0].tolist()


def _write_spool(
    stream: Stream,
    parts: StreamParts,
    surveyed: Survey,
    encoder: Encoder,
    target: Target,
    by_class: Floats | None,
    folder: Path,
) -> Spool:
    """All training rows, encoded, in files; the first of several processes writes them for those beside it to map."""

    def tensors(chunk: Chunk) -> dict[str, torch.Tensor]:
        rows = _encode(encoder, target, chunk)
        made = {f"x{place}": part for place, part in enumerate(rows.inputs)}
        made["y"] = torch.as_tensor(rows.codes)
        if by_class is not None or chunk.weights is not None:
            weights = np.ones(len(chunk)) if by_class is None else by_class[rows.codes]
            weights = (
                weights if chunk.weights is None else weights * finite_weights(chunk.weights) / surveyed.mean_weight
            )
            made["w"] = torch.as_tensor(weights, dtype=torch.float32)
        return made

    like, ranks = tensors(surveyed.sample.take(slice(2))), sharing_ranks()
    theirs = None if ranks is None else ranks.broadcast_bytes(str(folder).encode() if ranks.first else None)
    beside = theirs is not None and ranks is not None and not ranks.first and Path(theirs.decode()).is_dir()
    spool = None
    if not beside:
        spool = Spool(folder, parts.n_training, like)
        for chunk, trains in parts_of(stream, parts):
            if trains.any():
                spool.write(tensors(chunk.take(trains)))
    if ranks is not None:
        ranks.broadcast_numbers([0.0])  # all wait until everything is written
    if spool is None:
        assert theirs is not None
        spool = Spool(Path(theirs.decode()), parts.n_training, like, written=True)
    return spool


def _train_spooled(
    settings: FitSettings,
    model: WeightedAverage,
    encoder: Encoder,
    spool: Spool,
    validation: EncodedRows,
    by_class: Floats | None,
    seed: int,
    places: Ints | None,
) -> pd.DataFrame:
    held = TrainingRows(validation.inputs, torch.as_tensor(validation.codes))
    if getattr(model, "averaged", None) is None:  # validation judges classes that have training rows
        held = held.at(torch.as_tensor(spool.counts("y", model.n_classes) > 0)[held.y])
    rows = TrainingRows(spool.tensors("x"), spool.tensor("y"), next(iter(spool.tensors("w")), None))
    remembered = None if places is None else torch.as_tensor(places)
    options = {"block_rows": spool.block_rows, "remembered": remembered}
    return train(settings, model, encoder, rows, held, by_class, seed, **options)


# After training


def _represent(
    settings: FitSettings,
    model: WeightedAverage,
    target: Target,
    validation: HeldOutRows,
    calibration: HeldOutRows,
    spool: Spool,
) -> tuple[ReferenceSet, Agreement | None, str]:
    """The voters: a few of the remembered rows, if needed, for all training rows; their agreement, and a note."""
    sample, n = model.references, spool.n
    setting, few = "auto" if settings.voters is None else settings.voters, None
    if should_condense(setting, n, len(validation.y)):
        condenser = Condenser(sample, validation.h, validation.y, target)
        few = condenser.fewest() if setting == "auto" else condenser.represent(min(int(setting), len(sample)))
    if few is not None:
        voters = count_votes(few, _embedded(model, spool))
        note = f"{len(voters):,} representatives vote for {n:,} training rows, each for the rows similar to it"
    elif len(sample) < n:
        voters = shared_votes(sample, spool.counts("y", model.n_classes))
        note = (
            f"no small number of representatives keeps 99.5 % of labels and the loss: {len(sample):,} training rows "
            f"drawn at random vote for all {n:,}, each label with its exact share"
        )
    else:
        return sample, None, f"all {n:,} training rows vote"
    return voters, agreement_of(voters, sample, calibration.h, target), note


def _read_all(stream: Stream, parts: StreamParts, spool: Spool) -> Chunk:
    """All training rows, in memory, in the order of the spool."""
    chunks = [chunk.take(trains) for chunk, trains in parts_of(stream, parts)]
    order = np.empty(spool.n, dtype=np.int64)
    order[spool.places(np.arange(spool.n))] = np.arange(spool.n)
    return join_chunks([chunk for chunk in chunks if len(chunk)]).take(order)


@torch.no_grad()
def _embedded(model: WeightedAverage, spool: Spool) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(h, labels) of all spooled rows, block by block; where R ranks share the work, of every R-th block."""
    x, y, ranks = spool.tensors("x"), spool.tensor("y"), sharing_ranks()
    with evaluating(model):
        for block in list(spool.blocks())[0 if ranks is None else ranks.rank :: 1 if ranks is None else ranks.size]:
            parts = batches.batches_of(tuple(part[block] for part in x), size=4096 if y.is_cuda else 1024)
            h = torch.cat([model.embed(batches.move_to(part, model.device)) for (part,) in parts])
            yield h, y[block].to(h.device)


def _require_unique(ids: pd.Index[Any]) -> None:
    """Raise an error if ids of kept rows are repeated."""
    if not ids.is_unique:
        raise IdError(f"ids must be unique; {ids[ids.duplicated()].tolist()[0]!r} is repeated; choose another column")


def _require_memory(rows: int, each: float) -> None:
    """Raise an error if this many voters would take more than half of this machine's memory."""
    needed = rows * each
    if needed > memory() / 2:
        raise InputError(
            f"voters='all' would keep {rows:,} rows and their embeddings, {needed / 1e9:,.1f} GB, in memory, of which "
            f"there are {memory() / 1e9:,.1f} GB; leave voters at None, or give a number of representatives"
        )
    logger.info("all %s training rows will vote: about %.2f GB in memory", f"{rows:,}", needed / 1e9)
