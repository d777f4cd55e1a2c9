"""Fitting on more rows than memory holds.

Rows are read twice, in batches. The first pass summarises columns and target, and keeps a sample and the held-out rows
(`survey`). The second encodes all training rows into files (`spool`), from which the network is trained. A sample of
the rows is remembered; representatives are chosen among it, and each row is counted for the nearest of its own label.

    clf.fit(pyarrow.dataset.dataset("rows/"), "income")        # or "rows/*.parquet", "s3://bucket/rows/"
    clf.fit((frame for frame in frames), "income")             # batches, written to a file first

In memory are one row group of Parquet, the sample (200,000 rows), the held-out rows (at most 100,000 for each part),
and per row 8 bytes of its label and about 24 more of what training sorts by it. On disk are the encoded rows, 4 bytes
per number and 8 per category, in TMPDIR or beside the checkpoint, for the time of the fit. Fewer than 4,000 rows are
read as a whole, and fitted as ever. By default the model is small: see `voters`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from dwac._machine import memory
from dwac.encoders import Encoder, TabularEncoder, choose
from dwac.errors import IdError, InputError
from dwac.estimator.condensing import Condenser, agreement_of, counted, shared_votes, wanted
from dwac.estimator.fitting import agreed_seed, grouped
from dwac.estimator.preparation import balanced, check_class_count, encode_known, without_empty_texts
from dwac.estimator.settings import SMALL_TABLE, device_of
from dwac.estimator.sharding import ShardedEstimator
from dwac.estimator.spool import Spool, workspace
from dwac.estimator.streams import Chunk, Roles, Stream, is_stream, joined, open_stream
from dwac.estimator.survey import StreamParts, Survey, located, parts_of, survey, weights_of
from dwac.estimator.targets import LABELS, NUMBERS, Target, read_labels, read_numbers
from dwac.nn import WeightedAverage, batches
from dwac.nn.batches import Inputs
from dwac.nn.heads import evaluating
from dwac.nn.ranks import shared

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

VOTERS = 100_000  # rows that are remembered, among which representatives are chosen


@dataclass(frozen=True)
class StreamReport:
    """How a stream was read: what is exact and what is not; `str` says it."""

    rows: int
    training: int
    sampled: int
    voters: int
    spooled_bytes: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Encoded(NamedTuple):
    """Rows that are held in memory, as the network takes them."""

    chunk: Chunk
    inputs: Inputs
    codes: Ints
    exact: Floats


class StreamingEstimator(ShardedEstimator):
    """An estimator that also learns from rows that are read in batches."""

    _predicts_numbers = False

    def _fit_shared(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        ids: Iterable[Hashable] | None,
        within: Iterable[Hashable] | None,
        groups: Iterable[Hashable] | None,
    ) -> Self:
        if not is_stream(X):
            given = without_empty_texts(self.encoder, X, y, sample_weight, ids, within, groups)
            return super()._fit_shared(*given)
        if self.shards is not None:
            raise InputError(
                "shards are for rows that memory holds; got rows that are read in batches; read them first"
            )
        if groups is not None:
            raise InputError(
                "groups are for rows that memory holds; got rows that are read in batches, which are held out one by "
                "one; read them first, or write one row per group"
            )
        self._check_settings()
        with workspace(self.checkpoint) as folder:
            stream = open_stream(X, Roles(y, ids, sample_weight, within), folder)  # type: ignore[arg-type]
            if stream.n - len(stream.left_out) < SMALL_TABLE:  # it may be cross-fitted
                rows = stream.kept()
                given = self._given(stream, rows)
                names = None if stream.roles.ids is None else rows.ids
                given = without_empty_texts(self.encoder, given, rows.y, rows.weights, names, rows.within, None)
                return super()._fit_shared(*given)
            return self._fit_stream(stream, folder)

    def _given(self, stream: Stream, rows: Chunk) -> Any:
        """The rows of a chunk in the form that the encoder takes."""
        kind = choose(self.encoder, ["text"] if stream.texts else rows.X).kind
        return rows.X.iloc[:, 0].tolist() if kind in ("text", "huggingface") and rows.X.shape[1] == 1 else rows.X

    def _fit_stream(self, stream: Stream, folder: Path) -> Self:
        rng = check_random_state(self.random_state if self.random_state is not None else agreed_seed())
        seed = int(rng.randint(2**31 - 1))
        draws = np.random.default_rng(seed)
        encoder = self._stream_encoder(stream)
        stream = stream if encoder.kind == "tabular" else stream.without_empty_texts()
        parts = StreamParts.draw(stream, self.validation_size, self.calibration_size, draws)
        found = survey(
            stream, parts, draws, table=isinstance(encoder, TabularEncoder), labels=not self._predicts_numbers
        )
        target = self._stream_target(found)
        codes = codes_of(target, found.sample.y)[0]
        said = self._learn(encoder, found, codes)
        by_class = self._stream_class_weights(target, found)
        device = device_of(self.device)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device.type == "cuda" else []):
            torch.manual_seed(seed)
            size = self.ensemble_size or encoder.recipe.networks_on(device)
            task = self._task(target, codes)
            model = self._new_model(encoder, target, size, task=task).to(device)
            chosen = self._remembered(found, codes, draws, size * (self.embedding_size or 32))
            rows = found.calibration if len(found.calibration) else found.validation
            for chunk in (found.sample if chosen is None else chosen, rows):
                _unique(chunk.ids)  # before hours of training, not after
            if rows.within is not None:
                grouped(rows.within.tolist(), rows.ids, "within")
            spool = self._spool(stream, parts, found, encoder, target, by_class, folder)
            held = [self._encode(encoder, target, chunk) for chunk in (found.validation, found.calibration)]
            places = None if chosen is None else spool.places(parts.training_numbers(chosen.rows))
            history = self._train_spooled(model, encoder, spool, held[0], by_class, seed, places)
        self._took(self._features(found.sample.X.head(2), encoder), target, encoder, model, history, None)
        if chosen is None:
            chosen, places = self._everybody(stream, parts, spool), np.arange(spool.n)
        inputs = tuple(part[torch.as_tensor(places)] for part in spool.tensors("x"))
        said.append(self._settle(self._encode(encoder, target, chosen, inputs), held[0], held[1], spool, by_class))
        voters = len(model.references)
        lines = tuple(line for line in (*parts.said, *said) if line)
        self.stream_ = StreamReport(stream.n, found.rows, len(found.sample), voters, spool.n * spool.row_bytes, lines)
        logger.info("%s", self.stream_)
        return self

    # The first pass

    def _stream_encoder(self, stream: Stream) -> Encoder:
        """The encoder, if it can be fitted on a sample."""
        probe = pd.DataFrame({name: [0] for name in stream.features})
        encoder = self._suited(choose(self.encoder, ["text"] if stream.texts else probe))
        if encoder.kind not in ("tabular", "text", "huggingface"):
            raise InputError(
                f"rows that are read in batches must be tables or texts; got encoder={self.encoder!r:.60} for "
                f"{encoder.kind} data; give images and tensors as a whole: fit(X, y), or train with dwac.nn"
            )
        if encoder.kind != "tabular" and len(stream.features) != 1:
            raise InputError(f"texts must be one column besides the target; got {stream.features}")
        if self.cross_fit is True:
            raise InputError("cross_fit=True needs all rows in memory; give X and y as a whole, or leave it at 'auto'")
        return encoder

    def _stream_target(self, found: Survey) -> Target:
        """What is predicted: the outcomes of all rows, or numbers as a sample of the training rows has them."""
        if found.outcomes is None:
            with located(found.sample.rows):
                reading = self._read_target(found.sample.y, len(found.sample))
            return reading.target(np.arange(len(found.sample)))
        values = found.outcomes.values(found.sample.y)
        check_class_count(len(found.outcomes.counts), found.rows)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".* rows have no label at all")  # these are not rows
            return self._read_target(values, len(values)).target(np.arange(len(values)))

    def _learn(self, encoder: Encoder, found: Survey, codes: Ints) -> list[str]:
        """Fit the encoder on what the first pass found; what is to be said of it."""
        X, n = found.sample.X, len(found.sample)
        if isinstance(encoder, TabularEncoder):
            assert found.table is not None
            with located(found.sample.rows):
                found.table.fit(encoder, X)
            return found.table.said(n)
        encoder.fit(X.iloc[:, 0].tolist(), codes)
        return [f"words and lengths of texts are of {n:,} of {found.rows:,} training rows"]

    def _stream_class_weights(self, target: Target, found: Survey) -> Floats | None:
        """(K,) from the exact counts of the first pass."""
        by_class = self._class_weights(target, np.arange(target.n_codes))
        if by_class is None or getattr(self, "class_weight", None) != "balanced" or found.outcomes is None:
            return by_class
        counts = found.outcomes.counts
        known = encode_known(pd.Series([*counts], dtype=object), len(counts), target.outcomes)
        totals = np.zeros(target.n_codes, dtype=np.int64)
        totals[known] = [*counts.values()]
        return balanced(totals)

    def _remembered(self, found: Survey, codes: Ints, rng: np.random.Generator, size: int) -> Chunk | None:
        """The rows that are remembered: a sample with some of every outcome; None for all.

        codes: of the rows of the sample.
        """
        if self.voters == "all":
            each = float(found.sample.X.memory_usage(deep=True, index=False).sum()) / len(found.sample) + 8 * size
            _require_memory(found.rows, each)
            return None
        most = max(VOTERS, 4 * self.voters if isinstance(self.voters, int) else 0)
        sample = found.sample
        if len(sample) > most:
            some = rng.choice(len(sample), most, replace=False)
            absent = ~np.isin(codes, codes[some])
            first = np.unique(np.where(absent, codes, -1), return_index=True)[1]
            sample = sample.take(np.union1d(some, first[absent[first]]))
        if found.rare is None or found.complete:
            return sample
        more = found.rare.take(~np.isin(found.rare.rows, sample.rows))
        return joined([sample, more]) if len(more) else sample

    # The second pass

    def _encode(self, encoder: Encoder, target: Target, chunk: Chunk, inputs: Inputs | None = None) -> Encoded:
        """Rows that are held in memory as tensors and codes."""
        with located(chunk.rows):
            if inputs is None:
                X = chunk.X if isinstance(encoder, TabularEncoder) else chunk.X.iloc[:, 0].tolist()
                inputs = encoder.transform(X) if len(chunk) else ()
            codes, exact = codes_of(target, chunk.y) if len(chunk) else (np.zeros(0, np.int64), np.zeros((0, 0)))
        return Encoded(chunk, inputs, codes, exact)

    def _spool(
        self,
        stream: Stream,
        parts: StreamParts,
        found: Survey,
        encoder: Encoder,
        target: Target,
        by_class: Floats | None,
        folder: Path,
    ) -> Spool:
        """All training rows, encoded, in files; of several processes, the first writes what those beside it map."""

        def tensors(chunk: Chunk) -> dict[str, torch.Tensor]:
            rows = self._encode(encoder, target, chunk)
            made = {f"x{place}": part for place, part in enumerate(rows.inputs)}
            made["y"] = torch.as_tensor(rows.codes)
            if by_class is not None or chunk.weights is not None:
                weights = np.ones(len(chunk)) if by_class is None else by_class[rows.codes]
                weights = weights if chunk.weights is None else weights * weights_of(chunk) / found.mean_weight
                made["w"] = torch.as_tensor(weights, dtype=torch.float32)
            return made

        like, ranks = tensors(found.sample.take(slice(2))), shared()
        theirs = None if ranks is None else ranks.first_sends(str(folder).encode() if ranks.first else None)
        beside = theirs is not None and ranks is not None and not ranks.first and Path(theirs.decode()).is_dir()
        spool = None
        if not beside:
            spool = Spool(folder, parts.n_training, like)
            for chunk, trains in parts_of(stream, parts):
                if trains.any():
                    spool.write(tensors(chunk.take(trains)))
        if ranks is not None:
            ranks.agreed([0.0])  # all wait until everything is written
        if spool is None:
            assert theirs is not None
            spool = Spool(Path(theirs.decode()), parts.n_training, like, written=True)
        return spool

    def _train_spooled(
        self,
        model: WeightedAverage,
        encoder: Encoder,
        spool: Spool,
        validation: Encoded,
        by_class: Floats | None,
        seed: int,
        places: Ints | None,
    ) -> pd.DataFrame:
        y = spool.tensor("y")
        held, there = torch.as_tensor(validation.codes), torch.as_tensor(spool.counts("y", model.n_classes) > 0)
        known = there[held] if getattr(model, "averaged", None) is None else torch.ones_like(held, dtype=torch.bool)
        weights = spool.tensors("w")
        return self._train(
            model,
            encoder,
            spool.tensors("x"),
            y,
            (tuple(part[known] for part in validation.inputs), held[known]) if bool(known.any()) else None,
            weights[0] if weights else None,
            by_class,
            seed,
            block_rows=spool.block_rows,
            remembered=None if places is None else torch.as_tensor(places),
        )

    # After training

    def _settle(self, chosen: Encoded, validation: Encoded, calibration: Encoded, spool: Spool, by_class: Any) -> str:
        """Let those chosen vote, or few for all; hold out the others. What is to be said of it."""
        model, names = self.model_, _unique(chosen.chunk.ids)
        exact = chosen.exact if self.target_.kind == NUMBERS else None
        model.references = model.references.replaced(ids=names.tolist(), class_weights=by_class, targets=exact)
        self._novelty, self._folds = self._new_novelty(chosen.inputs), None
        held = validation
        self._validation_rows = self._rows_of(held.inputs, held.codes, held.chunk.ids, held.exact)
        self.validation_ids_ = validation.chunk.ids
        rows = calibration if len(calibration.codes) else validation
        self._calibrate(self._rows_of(rows.inputs, rows.codes, _unique(rows.chunk.ids), rows.exact))
        if rows.chunk.within is not None:
            self._within = grouped(rows.chunk.within.tolist(), rows.chunk.ids, "within")
        said = self._represent_stream(model, spool)
        places = names.get_indexer(model.references.voters.ids)
        X = chosen.chunk.X.iloc[places].reset_index(drop=True)
        self._keep(names[places], X if isinstance(self.encoder_, TabularEncoder) else X.iloc[:, 0].tolist())
        if self._novelty.known is not None:
            self._novelty = replace(self._novelty, known=self._novelty.known.of(names[places]))
        self._novelty = self._fitted_novelty()
        return said

    def _represent_stream(self, model: WeightedAverage, spool: Spool) -> str:
        """Let few of those who are remembered vote for all training rows, if need be; what is to be said of it."""
        sample, rows, n = model.references, self._validation_rows, spool.n
        asked, few = "auto" if self.voters is None else self.voters, None
        if wanted(asked, n, len(rows.y)):
            condenser = Condenser(sample, rows.h, rows.y, self.target_)
            few = condenser.fewest() if asked == "auto" else condenser.represented(min(int(asked), len(sample)))
        if few is not None:
            model.references = counted(few, _embedded(model, spool))
            said = f"{len(model.references):,} representatives vote for {n:,} training rows, each for those like it"
        elif len(sample) < n:
            model.references = shared_votes(sample, spool.counts("y", model.n_classes))
            said = (
                f"no few representatives keep 99.5 % of labels and the loss: {len(sample):,} training rows drawn at "
                f"random vote for all {n:,}, each label with its exact share"
            )
        else:
            return f"all {n:,} training rows vote"
        h = self._calibration_rows.h
        self._agreement = agreement_of(model.references, sample, h, self.target_) if len(h) else None
        return said

    def _everybody(self, stream: Stream, parts: StreamParts, spool: Spool) -> Chunk:
        """All training rows, in memory, in the order of the spool."""
        chunks = [chunk.take(trains) for chunk, trains in parts_of(stream, parts)]
        order = np.empty(spool.n, dtype=np.int64)
        order[spool.places(np.arange(spool.n))] = np.arange(spool.n)
        return joined([chunk for chunk in chunks if len(chunk)]).take(order)


def codes_of(target: Target, y: Any) -> tuple[Ints, Floats]:
    """(codes (n,), exact (n, T)) of the outcomes of n rows."""
    if target.kind == NUMBERS:
        exact = read_numbers(y, len(y))[0]
        return target.codes(exact), exact
    if target.kind == LABELS:
        table = read_labels(y, len(y), target.names, listed=target.listed)[0]
        return target.codes(table), table
    return encode_known(y, len(y), target.outcomes), np.zeros((len(y), 0))


@torch.no_grad()
def _embedded(model: WeightedAverage, spool: Spool) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(h, labels) of all spooled rows, some at a time; where ranks share the work, of every R-th block."""
    x, y, ranks = spool.tensors("x"), spool.tensor("y"), shared()
    with evaluating(model):
        for block in list(spool.blocks())[0 if ranks is None else ranks.rank :: 1 if ranks is None else ranks.size]:
            parts = batches.batches_of(tuple(part[block] for part in x), size=4096 if y.is_cuda else 1024)
            h = torch.cat([model.embed(batches.on(part, model.device)) for (part,) in parts])
            yield h, y[block].to(h.device)


def _unique(ids: pd.Index[Any]) -> pd.Index[Any]:
    """Ids of rows that are kept, each of which must be another."""
    if not ids.is_unique:
        raise IdError(f"ids must be unique; {ids[ids.duplicated()].tolist()[0]!r} is repeated; choose another column")
    return ids


def _require_memory(rows: int, each: float) -> None:
    """Raise an error if so many voters would take more than half of this machine's memory."""
    needed = rows * each
    if needed > memory() / 2:
        raise InputError(
            f"voters='all' would keep {rows:,} rows and their embeddings, {needed / 1e9:,.1f} GB, in memory, of which "
            f"there are {memory() / 1e9:,.1f} GB; leave voters at None, or give a number of representatives"
        )
    logger.info("all %s training rows will vote: about %.2f GB in memory", f"{rows:,}", needed / 1e9)
