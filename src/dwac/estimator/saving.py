"""A fitted estimator as a model folder stores it: plain values, tensors and records; `loading` reads them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.encoders import ModuleEncoder
from dwac.errors import EncodingError
from dwac.estimator.fitted import Fitted, fits_half
from dwac.estimator.held_out import HeldOutRows
from dwac.estimator.settings import flat
from dwac.estimator.shards import ShardRows, Shards
from dwac.explain.profiles import pack_profile
from dwac.reference import ReferenceSet
from dwac.storage import decode_value, encode_value
from dwac.tasks import Target
from dwac.tasks.shift import Shift

NETWORK = ("backbone", "embedding", "logits")
MOST_BYTES = 2**28  # for labels, and for a network's numbers that are computed rather than stored
SHARD_COLUMNS = ("codes", "exact", "weights", "shard", "role")
_NOW = ("nonconformity", "class_conditional", "average", "unknown", "random_state", "device", "encoder")
_LABELS = "OUSiufbmM"  # NumPy's letters for objects, texts, bytes, numbers, booleans, durations and dates


Packed = tuple[dict[str, Any], dict[str, Tensor]]  # entries of the config, and tensors


def pack(
    estimator: Any, *, include_examples: bool, include_members: bool = False
) -> tuple[dict[str, Any], dict[str, Tensor], pd.DataFrame, pd.DataFrame | None]:
    """(config, tensors, examples, all rows of fit) of a fitted estimator, as `storage.write_model` takes them."""
    fitted: Fitted = estimator.fitted_
    members, agreement = fitted.references.members, fitted.agreement
    whole = members is not None and include_members  # representatives are stored with the examples behind them
    references = fitted.references if members is None or not whole else members
    few = references.voters.represents
    rows = None  # for retraining networks after an exact deletion; a condensed model names no row that it does not need
    if include_examples and fitted.shards is not None and not fitted.references.voters.represents:
        rows = fitted.shards.rows
    config = _pack_settings(estimator) | {
        "calibration_groups": fitted.n_groups,
        "groups": None if fitted.within is None else _encode(fitted.within.reindex(fitted.calibration.ids)),
        "features": _encode(() if fitted.features.names is None else fitted.features.names),
        "n_features": fitted.features.n,
        # Validation rows choose representatives. Without the represented rows there is nothing to choose from, so
        # these rows are of no use, and a small folder should name no row that it does not need.
        "validation_ids": [] if few else _encode(fitted.validation_ids),
        "calibration_ids": _encode(fitted.calibration.ids),
        "history": _pack_history(fitted.history),
        "ended": fitted.history.attrs.get("ended"),
        "condensed": whole,
        "agreement": None if agreement is None else list(agreement),
        "names": [
            [encode_value(column), name.title, name.unit, [*map(list, name.codes.items())]]
            for column, name in fitted.legend.names.items()
        ],
        "target_columns": list(fitted.target_columns),
        "private": fitted.private or not include_examples,
        "deletions": [certificate.to_dict() for certificate in fitted.deletions],
    }
    tensors = _pack_rows("calibration", fitted.calibration, include_examples)
    tensors |= {} if few else _pack_rows("validation", fitted.validation, include_examples)
    tensors |= _pack_references(references)
    if fitted.settings.class_weight is not None:
        tensors["class_weights"] = torch.as_tensor(references.class_weights)
    for values, own in (
        _pack_target(fitted.target),
        _pack_network(fitted),
        _pack_shift(fitted.shift),
        _pack_novelty(fitted, references, include_examples),
        _pack_descriptions(fitted, include_examples, few=few),
        _pack_folds(fitted, include_examples, few=few),
        _pack_shards(fitted.shards, rows),
    ):
        config |= values
        tensors |= own
    examples, config["without_record"] = _pack_examples(fitted, references, include_examples)
    if rows is None:
        return config, tensors, examples, None
    # The tensors have the images.
    frame = rows.X.set_axis(rows.ids, axis=0) if isinstance(rows.X, pd.DataFrame) else pd.DataFrame(index=rows.ids)
    return config, tensors, examples, frame


def _pack_examples(
    fitted: Fitted, references: ReferenceSet, include_examples: bool
) -> tuple[pd.DataFrame, list[list[Any]]]:
    """(the records of the voters, with their ids as the index; the voters without a record)."""
    ids = pd.Index(list(references.ids), tupleize_cols=False)
    records = fitted.examples.frame() if include_examples else None
    if records is None:
        return pd.DataFrame(index=ids), []
    rows = records.index.get_indexer(ids)
    # Voters added to a model that was saved without records have none. They are listed, so that no cell is invented.
    missing = [[int(row), encode_value(ids[row])] for row in np.flatnonzero(rows < 0)]
    return records.iloc[rows[rows >= 0]], missing


def labels_of(encoded: list[Any], kind: str) -> NDArray[Any]:
    """(K,) labels of a NumPy type; an error names a label that would change when stored."""
    dtype = np.dtype(kind)
    if dtype.kind not in _LABELS or dtype.itemsize * len(encoded) > MOST_BYTES:
        first = repr(decode_value(encoded[0])) if encoded else "none"
        raise EncodingError(f"labels of type {kind!r}, such as {first}, are not supported; use strings or numbers")
    labels = np.empty(len(encoded), dtype=object)
    for place, label in enumerate(encoded):
        labels[place] = decode_value(label)
    typed = labels.astype(dtype)
    for label, before, after in zip(labels, encoded, typed, strict=True):
        if encode_value(after) != before:
            raise EncodingError(f"label {label!r:.200} would change to {after!r:.200} as {kind}; use a plainer label")
    if len(set(labels)) != len(labels):
        raise EncodingError(f"labels must be unique; got {labels.tolist()!r:.200}")
    return typed


def _encode(values: Iterable[Any]) -> list[Any]:
    return [encode_value(value) for value in values]


def _pack_settings(estimator: Any) -> dict[str, Any]:
    """The settings as fitted, with the current ones that concern predictions; the others are for the next fit."""
    fitted, live = estimator.fitted_, flat(estimator.get_params(deep=False))
    settings = {name: live[name] if name in _NOW else getattr(fitted.settings, name) for name in live}
    encoder, seed = settings.pop("encoder"), settings["random_state"]
    if fitted.settings.regression:
        settings.pop("auxiliary_weight")
    stored = {name: _pack_setting(value) for name, value in settings.items()}
    stored |= {"random_state": seed if isinstance(seed, int) else None}
    stored |= {"checkpoint": None, "device": str(settings["device"])}
    name = encoder if isinstance(encoder, str) else None
    return {
        "settings": stored,
        "encoder": {"asked": name, "kind": fitted.encoder.kind, "config": fitted.encoder.config()},
    }


def _pack_setting(value: Any) -> Any:
    if isinstance(value, Mapping):  # class_weight: labels may be anything hashable
        return {"pairs": [[encode_value(key), float(weight)] for key, weight in value.items()]}
    return value.item() if isinstance(value, np.generic) else value


def _pack_history(history: pd.DataFrame) -> dict[str, list[Any]]:
    """The history as JSON values: a shard without validation rows has no validation loss."""
    return {str(name): list(column) for name, column in history.astype(object).where(history.notna(), None).items()}


def _pack_rows(part: str, rows: HeldOutRows, include_examples: bool) -> dict[str, Tensor]:
    z = rows.z if include_examples else rows.z[:, :0]
    tensors = {f"{part}_h": rows.h, f"{part}_y": torch.as_tensor(rows.y), f"{part}_z": z}
    return tensors if rows.exact.shape[1] == 0 else tensors | {f"{part}_exact": torch.as_tensor(rows.exact)}


def _pack_target(target: Target) -> Packed:
    names = _encode(target.names)
    labels_of(names, target.names.dtype.str)  # refuses labels that could not be loaded again
    values = {"task": target.kind, "listed": target.listed, "single": target.single}
    values |= {"classes": names, "classes_type": target.names.dtype.str}
    if target.has_codes:
        return values, {}
    return values, {"target_table": torch.as_tensor(target.table), "target_scale": torch.as_tensor(target.scale)}


def _pack_network(fitted: Fitted) -> Packed:
    model, encoder = fitted.model, fitted.encoder
    half = fitted.half  # loading gives the same numbers in float32
    tensors = {
        f"{part}.{name}": value.half() if half and value.ndim > 1 and fits_half(value) else value
        for part in NETWORK
        if hasattr(model, part)
        for name, value in getattr(model, part).state_dict().items()
    }
    size = 1 if isinstance(encoder, ModuleEncoder) else model.ensemble_size - encoder.n_beside
    return {"raw_feature_weight": getattr(model, "raw_feature_weight", 0.0), "ensemble_size": size}, tensors


def _pack_shift(shift: Shift | None) -> Packed:
    if shift is None:
        return {"shift": None}, {}
    return {"shift": [shift.n_new, shift.overlap]}, {"shift": torch.as_tensor(shift.coefficients)}


def _pack_novelty(fitted: Fitted, references: ReferenceSet, include_examples: bool) -> Packed:
    known, usual, names = fitted.novelty.known, fitted.novelty.usual, references.voters.ids
    if known is None or not include_examples:  # raw features are training data
        return {"novelty": None}, {}
    rows = torch.as_tensor(np.flatnonzero(names.isin(known.ids)))
    values = {"novelty": None if usual is None else [list(pair) for pair in usual]}
    return values, {"known_z": known.of(names).z, "known_rows": rows}


def _pack_descriptions(fitted: Fitted, include_examples: bool, *, few: bool) -> Packed:
    texts = fitted.descriptions if include_examples else None
    if texts is None or not few or texts.profile is None:
        return {"descriptions": texts}, {}
    # The members of groups are not kept: what they have in common is.
    values, shares = pack_profile(texts.profile)
    named = [{**each, "name": encode_value(each["name"])} for each in values.get("columns", [])]
    profile = values | ({"columns": named} if named else {})
    return {"descriptions": texts, "profile": profile}, {"profile": _narrow(torch.as_tensor(shares))}


def _narrow(numbers: Tensor) -> Tensor:
    """The same numbers in the narrowest type that holds them."""
    kinds = (numbers.to(kind) for kind in (torch.float16, torch.float32))
    return next((other for other in kinds if torch.equal(other.to(numbers.dtype), numbers)), numbers)


def _pack_references(references: ReferenceSet) -> dict[str, Tensor]:
    voters, groups = references.voters, references.groups
    tensors = {
        "ref_h": references.embeddings,
        "ref_y": references.labels,
        "ref_leaf": torch.as_tensor(groups.leaves),
        "leaf_group": torch.as_tensor(groups.parents),
        "leaf_factor": torch.as_tensor(voters.leaf_factors),
    }
    if references.targets is not None:
        tensors["ref_target"] = references.targets
    if voters.look_alikes is not None:
        tensors["look_alikes"] = torch.tensor(voters.look_alikes, dtype=torch.float64)
    if voters.weighted:
        tensors |= {"ref_weight": torch.tensor(references.weights), "ref_size": torch.tensor(references.sizes)}
    return tensors


def _pack_folds(fitted: Fitted, include_examples: bool, *, few: bool) -> Packed:
    """The folds of a cross-fitted model and, of a condensed one, the representatives in the models of the folds.

    If all rows are stored, only the votes; otherwise the rows that vote in any fold.
    """
    folds, references = fitted.folds, fitted.references
    if folds is None:
        return {}, {}
    tensors = {"folds": torch.as_tensor(folds.numbers(fitted.calibration.ids))}
    if not references.voters.represents:
        return {}, tensors
    if not few:
        return {"fold_ids": []}, tensors | {"fold_votes": torch.as_tensor(folds.voters(references).votes)}
    own = folds.alone(references).few
    assert own is not None
    tensors |= {"fold_votes": torch.as_tensor(own.votes), "fold_h": own.voters.embeddings, "fold_y": own.voters.labels}
    if own.voters.targets is not None:
        tensors["fold_target"] = own.voters.targets
    if (known := fitted.novelty.known) is not None and include_examples:
        names = own.voters.voters.ids
        tensors["fold_z"] = known.of(names).z
        tensors["fold_known"] = torch.as_tensor(np.flatnonzero(names.isin(known.ids)))
    return {"fold_ids": _encode(own.voters.ids)}, tensors


def _pack_shards(shards: Shards | None, rows: ShardRows | None) -> Packed:
    if shards is None:
        return {"shards": None}, {}
    values = {name: getattr(shards, name) for name in ("n", "seed", "threads", "device")}
    values |= {"stale": sorted(shards.stale), "pending": list(shards.pending), "rows": rows is not None}
    tensors = {}
    if rows is not None:
        tensors = {f"shard_{name}": torch.as_tensor(getattr(rows, name)) for name in SHARD_COLUMNS}
        tensors |= {} if isinstance(rows.X, pd.DataFrame) else {"shard_images": torch.as_tensor(rows.X)}
    return {"shards": values}, tensors
