"""How a model folder stores and restores a fitted estimator: plain values, tensors and records.

A folder may come from anywhere. So everything is checked before use: it must be valid, consistent, and take no more
memory than the files do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dwac import _checks as checks
from dwac.encoders import ENCODERS, Encoder, HuggingFaceEncoder, ImageEncoder, ModuleEncoder, TabularEncoder, backbone
from dwac.encoders.sharded import SHARDED, Sharded
from dwac.errors import DwacError, EncodingError, InputError, StorageError
from dwac.estimator import shards
from dwac.estimator.certificate import Certificate
from dwac.estimator.fitted import Descriptions, Features, Fitted, Origin
from dwac.estimator.folds import Folds, Representatives
from dwac.estimator.held_out import HeldOutRows
from dwac.estimator.novelty import Novelty, Usual
from dwac.estimator.preparation import Examples
from dwac.estimator.settings import Settings, flat, parameters
from dwac.metrics import Agreement
from dwac.nn import Ensemble, WeightedAverage
from dwac.reference import Known, ReferenceSet, mapped_set, with_groups
from dwac.storage import Stored, decode_value, encode_value
from dwac.tasks import CLASSES, LABELS, NUMBERS, ORDERED, Target, classes, label_sets, number_bins
from dwac.training.cross_fit import FOLDS

_NETWORK = ("backbone", "embedding", "logits")
_WHOLE = (  # tensors of whole numbers
    "ref_y", "ref_leaf", "leaf_group", "calibration_y", "validation_y", "known_rows", "folds", "shard_codes",
    "shard_shard", "shard_role", "fold_y", "fold_known",
)  # fmt: skip
_ROWS = {  # tensors of voters, and their names in a reference set
    "ref_h": "embeddings",
    "ref_y": "labels",
    "ref_target": "targets",
    "ref_weight": "weights",
    "ref_size": "sizes",
}
MAPPED = frozenset(_ROWS)  # what stays in the file with mapped voters
_NOW = ("nonconformity", "class_conditional", "average", "unknown", "random_state", "device", "encoder")
_LABELS = "OUSiufbmM"  # NumPy's letters for objects, texts, bytes, numbers, booleans, durations and dates
_MOST_BYTES = 2**28  # for labels, and for a network's numbers that are computed rather than stored


class _ModuleNeededError(InputError):
    """The folder is fine, but the caller must give the network."""


# Writing


def pack(
    estimator: Any, *, include_examples: bool, include_members: bool = False
) -> tuple[dict[str, Any], dict[str, Tensor], pd.DataFrame | None]:
    """(config, tensors, examples) of a fitted estimator."""
    fitted, live = estimator.fitted_, flat(estimator.get_params(deep=False))
    # The settings as fitted, with the current ones that concern predictions; the others are for the next fit.
    settings = {name: live[name] if name in _NOW else getattr(fitted.settings, name) for name in live}
    left_out = ("encoder", "auxiliary_weight") if fitted.settings.regression else ("encoder",)
    stored = {name: _packed(value) for name, value in settings.items() if name not in left_out}
    seed, encoder = settings["random_state"], settings["encoder"]
    stored |= {"random_state": seed if isinstance(seed, int) else None}
    stored |= {"checkpoint": None, "device": str(settings["device"])}
    target, model = fitted.target, fitted.model
    features = () if fitted.features.names is None else fitted.features.names
    names = [encode_value(label) for label in target.names]
    _classes(names, target.names.dtype.str)  # refuses labels that could not be loaded again
    config = {
        "settings": stored,
        "encoder": {
            "asked": encoder if isinstance(encoder, str) else None,
            "kind": fitted.encoder.kind,
            "config": fitted.encoder.config(),
        },
        "task": target.kind,
        "listed": target.listed,
        "single": target.single,
        "calibration_groups": fitted.n_groups,
        "groups": None if fitted.within is None else [encode_value(name) for name in _groups(fitted)],
        "classes": names,
        "classes_type": target.names.dtype.str,
        "features": [encode_value(name) for name in features],
        "n_features": fitted.features.n,
        "validation_ids": [encode_value(name) for name in fitted.validation_ids],
        "calibration_ids": [encode_value(name) for name in fitted.calibration.ids],
        "history": _history(fitted.history),
        "ended": fitted.history.attrs.get("ended"),
        "raw_feature_weight": getattr(model, "raw_feature_weight", 0.0),
        "novelty": None,
        "ensemble_size": 1
        if isinstance(fitted.encoder, ModuleEncoder)
        else model.ensemble_size - fitted.encoder.n_beside,
        "without_record": [],
        "condensed": False,
        "agreement": None,
        "descriptions": None,
        "private": fitted.private or not include_examples,
        "deletions": [certificate.to_dict() for certificate in fitted.deletions],
    }
    tensors = {
        f"{part}.{name}": value
        for part in _NETWORK
        if hasattr(model, part)
        for name, value in getattr(model, part).state_dict().items()
    }
    if not target.has_codes:
        tensors |= {"target_table": torch.as_tensor(target.table), "target_scale": torch.as_tensor(target.scale)}
    tensors |= _pack_rows("calibration", fitted.calibration, include_examples)
    config["shards"], own = shards.pack(fitted.shards, include_rows=_keeps_rows(fitted, include_examples))
    tensors |= own
    if fitted.folds is not None:
        tensors["folds"] = torch.as_tensor(fitted.folds.numbers(fitted.calibration.ids))
    agreement, members = fitted.agreement, fitted.references.members
    config["agreement"] = None if agreement is None else list(agreement)
    config["condensed"] = members is not None and include_members
    config["descriptions"] = fitted.descriptions if include_examples else None
    references = fitted.references if members is None or not include_members else members
    tensors |= {"ref_h": references.embeddings, "ref_y": references.labels}
    if references.targets is not None:
        tensors["ref_target"] = references.targets
    tensors |= {"ref_leaf": torch.as_tensor(references.groups.leaves)}
    tensors |= {"leaf_group": torch.as_tensor(references.groups.parents)}
    tensors |= {"leaf_factor": torch.as_tensor(references.voters.leaf_factors)}
    if references.voters.look_alikes is not None:
        tensors["look_alikes"] = torch.tensor(references.voters.look_alikes, dtype=torch.float64)
    if references.voters.weighted:
        tensors |= {"ref_weight": torch.tensor(references.weights), "ref_size": torch.tensor(references.sizes)}
    if fitted.references.voters.weighted and fitted.folds is not None:
        config["fold_ids"], own = _pack_fold_voters(
            fitted, fitted.folds, include_examples, alone=references.voters.weighted
        )
        tensors |= own
    if references.voters.weighted:
        # Validation rows choose representatives. Without the represented rows there is nothing to choose from, so
        # these rows are of no use, and a small folder should name no row that it does not need.
        config["validation_ids"] = []
    else:
        tensors |= _pack_rows("validation", fitted.validation, include_examples)
    measured = fitted.novelty
    if measured.known is not None and include_examples:  # raw features are training data
        config["novelty"] = None if measured.usual is None else [list(pair) for pair in measured.usual]
        tensors["known_z"] = measured.known.of(references.voters.ids).z
        tensors["known_rows"] = torch.as_tensor(np.flatnonzero(references.voters.ids.isin(measured.known.ids)))
    if settings.get("class_weight") is not None:
        tensors["class_weights"] = torch.as_tensor(references.class_weights)
    # The ids are the index of the records or, without records, of a frame without columns.
    ids = pd.Index(list(references.ids), tupleize_cols=False)
    records = fitted.examples.frame() if include_examples else None
    if records is None:
        return config, tensors, pd.DataFrame(index=ids)
    rows = records.index.get_indexer(ids)
    # Voters added to a model that was saved without records have none. They are listed, so that no cell is invented.
    config["without_record"] = [[int(row), encode_value(ids[row])] for row in np.flatnonzero(rows < 0)]
    return config, tensors, records.iloc[rows[rows >= 0]]


def all_rows(fitted: Fitted, *, include_examples: bool) -> pd.DataFrame | None:
    """The rows for retraining networks after an exact deletion; None if there are none."""
    if fitted.shards is None or not _keeps_rows(fitted, include_examples):
        return None
    return shards.frame_of(fitted.shards)


def _keeps_rows(fitted: Fitted, include_examples: bool) -> bool:
    """Whether all rows are stored. A condensed model should name no row that it does not need."""
    return include_examples and fitted.shards is not None and not fitted.references.voters.weighted


def _history(history: pd.DataFrame) -> dict[str, list[Any]]:
    """The history as JSON values: a shard without validation rows has no validation loss."""
    return {str(name): list(column) for name, column in history.astype(object).where(history.notna(), None).items()}


def _pack_fold_voters(
    fitted: Fitted, folds: Folds, include_examples: bool, *, alone: bool
) -> tuple[list[Any], dict[str, Tensor]]:
    """The ids of the representatives in the models of the folds, and their tensors.

    If all rows are stored, only the votes; otherwise the rows that vote in any fold.
    """
    if not alone:
        return [], {"fold_votes": torch.as_tensor(folds.voters(fitted.references)[1])}
    few = folds.alone(fitted.references).few
    assert few is not None
    found = {"fold_votes": torch.as_tensor(few.votes), "fold_h": few.voters.embeddings, "fold_y": few.voters.labels}
    if few.voters.targets is not None:
        found["fold_target"] = few.voters.targets
    if (known := fitted.novelty.known) is not None and include_examples:
        names = few.voters.voters.ids
        found["fold_z"] = known.of(names).z
        found["fold_known"] = torch.as_tensor(np.flatnonzero(names.isin(known.ids)))
    return [encode_value(name) for name in few.voters.ids], found


def _pack_rows(part: str, rows: HeldOutRows, include_examples: bool) -> dict[str, Tensor]:
    z = rows.z if include_examples else rows.z[:, :0]
    found = {f"{part}_h": rows.h, f"{part}_y": torch.as_tensor(rows.y), f"{part}_z": z}
    return found if rows.exact.shape[1] == 0 else found | {f"{part}_exact": torch.as_tensor(rows.exact)}


# Reading


@contextmanager
def reading(path: str | PathLike[str]) -> Iterator[None]:
    """Turn every failure caused by well-formed but invalid contents into one clear error that names the folder."""
    try:
        yield
    except _ModuleNeededError:
        raise
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from None
    except (DwacError, ImportError) as error:
        raise StorageError(f"{path} cannot be loaded: {error}") from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise StorageError(f"{path} needs more memory than is available: {error}") from error
    except Exception as error:  # contents that dwac did not write may make constructors raise anything
        raise StorageError(
            f"{path} must hold a model that can be built; got {type(error).__name__}: {error}; save the model again"
        ) from error


def most_examples(tensors: Mapping[str, Tensor]) -> int:
    """The most records that a stored model may have: one per voter."""
    voters = tensors.get("ref_y")
    return len(voters) if voters is not None and voters.ndim else 0


def encoder_of(config: Mapping[str, Any]) -> Encoder:
    """The fitted encoder."""
    kind = config["encoder"]["kind"]
    if kind not in ENCODERS:
        raise StorageError(f"unknown encoder {kind!r}; this version of dwac has {', '.join(ENCODERS)}")
    learned = config["encoder"]["config"]
    if "shards" in learned and kind not in SHARDED:
        raise StorageError(f"an encoder for {kind!r} has no shards; restore the folder from a copy")
    encoder: Encoder = (SHARDED if "shards" in learned else ENCODERS)[kind].from_config(learned)
    if isinstance(encoder, HuggingFaceEncoder | ImageEncoder):
        encoder.settings["local_files_only"] = True  # a folder must not decide what is downloaded
    return encoder


def settings_of(config: Mapping[str, Any], encoder: Encoder) -> dict[str, Any]:
    """The constructor's parameters."""
    if isinstance(encoder, ModuleEncoder) and encoder.module is None:
        raise _ModuleNeededError(
            "this model was trained with a network of your own; pass that network: dwac.load(path, module=…)"
        )
    asked = config["encoder"]["asked"]
    settings = {name: _unpacked(value) for name, value in config["settings"].items()}
    head = settings.pop("head", "dwac")  # stored in folders until 1.0.0rc1
    if head != "dwac":
        raise StorageError(
            f"its head must be 'dwac', in which training examples vote; got {head!r:.60}, which models no longer have; "
            "train the model again, or load it with dwac 1.0.0rc1"
        )
    return {**parameters(settings), "encoder": encoder if asked is None else asked, "checkpoint": None}


def target_of(stored: Stored) -> Target:
    """The target of the model."""
    config, tensors = stored.config, stored.tensors
    kind, names = config.get("task", CLASSES), _classes(config["classes"], config["classes_type"])
    if kind in (CLASSES, ORDERED):
        return classes(names, ordered=kind == ORDERED)
    if kind not in (LABELS, NUMBERS):
        raise StorageError(f"its task must be classes, ordered, labels or numbers; got {kind!r:.50}")
    table, scale = tensors["target_table"].double().numpy(), tensors["target_scale"].double().numpy()
    width = len(names) if kind == NUMBERS else 0
    if table.ndim != 2 or len(table) == 0 or table.shape[1] != len(names) or scale.shape != (2, width):
        raise StorageError(
            f"its table of targets must have {len(names)} columns and a scale for each; got shapes {table.shape} and "
            f"{scale.shape}"
        )
    known = np.isin(table, (0.0, 1.0)).all() if kind == LABELS else np.isfinite(table).all()
    if not known or not np.isfinite(scale).all() or (scale[1] <= 0).any():
        raise StorageError("its table of targets must hold finite numbers, of labels 0 and 1 alone; it does not")
    if kind == LABELS:
        return label_sets(names, table, listed=config.get("listed") is True)
    return number_bins(names.tolist(), table, scale, single=config.get("single") is True and len(names) == 1)


class Sizes(NamedTuple):
    """Sizes of a stored model: the number of networks, the size of h of each, and the width of its features."""

    ensemble_size: int
    embedding_size: int
    n_features: int


def sizes_of(stored: Stored, encoder: Encoder, module: nn.Module | None = None) -> Sizes:
    """The sizes of the network to build; an error if they differ from those of the stored tensors."""
    config, tensors = stored.config, stored.tensors
    ensemble_size = checks.positive_int(config["ensemble_size"], "ensemble_size")
    held = _stored_networks(tensors)
    if ensemble_size > 1 and ensemble_size != held:
        raise StorageError(f"its config has {ensemble_size} networks; {held} are stored")
    joined = len(module) if isinstance(module, Ensemble) else ensemble_size + encoder.n_beside
    # Not from the recipe, which may have changed since.
    asked = None if isinstance(encoder, Sharded) else config["settings"]["embedding_size"]
    size = asked or len(tensors["embedding.bias"]) // joined
    n_features = int(tensors["embedding.weight"].shape[1])
    _check_shapes("embedding", {"weight": (joined * size, n_features), "bias": (joined * size,)}, tensors)
    encoder.check()
    _check_numbers({name: value for name, value in tensors.items() if name not in stored.rows})
    if not isinstance(encoder, ModuleEncoder):
        rehearse(encoder, ensemble_size, tensors)
    return Sizes(ensemble_size, size, n_features)


def _stored_networks(tensors: Mapping[str, Tensor]) -> int:
    """How many networks of an ensemble are stored: one by one, or stacked in one tensor."""
    stacked = tensors.get("backbone.weight")
    if stacked is not None and stacked.ndim == 3:
        return len(stacked)
    return len({name.split(".")[2] for name in tensors if name.startswith("backbone.members.")})


def unpack(
    settings: Settings, stored: Stored, encoder: Encoder, target: Target, model: WeightedAverage, device: torch.device
) -> Fitted:
    """The stored model; model: a new network of its sizes."""
    config, tensors = stored.config, stored.tensors
    settings.check()
    for part in _NETWORK:
        network = getattr(model, part, None)
        if isinstance(network, nn.Module):
            _check_shapes(part, {name: tuple(value.shape) for name, value in network.state_dict().items()}, tensors)
            network.load_state_dict(_of(part, tensors))
            _check_weights(part, network)
    model = model.to(device).eval()
    history = pd.DataFrame(config["history"])
    history.attrs["ended"] = config["ended"]
    validation_ids, calibration_ids = _ids(config["validation_ids"]), _ids(config["calibration_ids"])
    model.raw_feature_weight = _share(config["raw_feature_weight"], "raw_feature_weight", model.n_raw_features > 0)
    n_groups = config.get("calibration_groups")
    if not (n_groups is None or (type(n_groups) is int and 0 < n_groups <= len(calibration_ids))):
        raise StorageError(f"calibration_groups must be how many groups calibrated, or null; got {n_groups!r:.60}")
    calibration = _unpack_rows("calibration", tensors, calibration_ids, target, model, device)
    kept = "validation_h" in tensors
    validation = tensors if kept else {f"validation_{name}": tensors[f"calibration_{name}"][:0] for name in "hyz"}
    if not kept and "calibration_exact" in tensors:
        validation["validation_exact"] = tensors["calibration_exact"][:0]
    held = _unpack_rows("validation", validation, validation_ids if kept else validation_ids[:0], target, model, device)
    features = _unpack_features(config, encoder)
    ids = _unpack_references(stored, settings.kernel, target, model, device)
    novelty = Novelty(directions=encoder.kind != "tabular")
    if "known_z" in tensors:
        novelty = _novelty(stored, ids, model, device)
    folds, novelty = _unpack_folds(stored, target, model, calibration, novelty, device)
    if isinstance(encoder, HuggingFaceEncoder):  # checks that the library's network accepts its tokeniser's output
        with torch.no_grad():
            model.embed(tuple(part.to(device) for part in encoder.transform(["a"])))
    groups = model.references.groups
    return Fitted(
        settings=settings,
        encoder=encoder,
        model=model,
        target=target,
        history=history,
        examples=_unpack_examples(stored, encoder),
        novelty=novelty,
        validation=held,
        validation_ids=validation_ids,
        calibration=calibration,
        features=features,
        folds=folds,
        shards=shards.unpack(config.get("shards"), tensors, stored.all_rows),
        within=_unpack_groups(config.get("groups"), calibration_ids),
        n_groups=n_groups,
        private=bool(config["private"]),
        deletions=tuple(Certificate.from_dict(found) for found in config.get("deletions", [])),
        stored_agreement=_agreement(config["agreement"]),
        stored_descriptions=Descriptions(_descriptions(config["descriptions"], len(groups)), groups),
        origin=Origin(stored.fingerprint, model.references.voters),
    )


def _unpack_rows(
    part: str, tensors: Mapping[str, Tensor], ids: pd.Index[Any], target: Target, model: Any, device: torch.device
) -> HeldOutRows:
    """The held-out rows: their scores are computed again, against the current references."""
    h, y, z = (tensors[f"{part}_{name}"] for name in "hyz")
    _check_rows(part, h, y, len(ids), target.n_codes, model.vector_size)
    width = model.n_compared_features if "known_z" in tensors else 0
    if z.ndim != 2 or len(z) != len(h) or (len(h) and z.shape[1] != width):
        raise StorageError(f"the features of its {len(h)} {part} rows do not fit the model; got shape {tuple(z.shape)}")
    exact = tensors.get(f"{part}_exact", torch.zeros(len(h), 0)).double().numpy()
    width = target.table.shape[1]
    fits = target.holds(exact)
    if exact.shape != (len(h), width) or not fits:
        raise StorageError(
            f"the targets of its {len(h)} {part} rows must be {width} finite numbers each; got shape {exact.shape}"
        )
    return HeldOutRows(h.to(device, model.embedding.weight.dtype), z.to(device), y.numpy(), ids, exact)


def _groups(fitted: Fitted) -> list[Any]:
    """The groups of the calibration rows."""
    assert fitted.within is not None
    return list(fitted.within.reindex(fitted.calibration.ids))


def _unpack_groups(values: Any, ids: pd.Index[Any]) -> pd.Series[Any] | None:
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != len(ids):
        raise StorageError(f"its groups must be a list of {len(ids)} names, one per calibration row; they are not")
    return pd.Series([decode_value(value) for value in values], index=ids, dtype=object)


def _unpack_folds(
    stored: Stored,
    target: Target,
    model: WeightedAverage,
    rows: HeldOutRows,
    novelty: Novelty,
    device: torch.device,
) -> tuple[Folds | None, Novelty]:
    """The folds of a cross-fitted model with these calibration rows, and its novelty with all voters of the folds."""
    ids, tensors, references = rows.ids, stored.tensors, model.references
    of, votes = tensors.get("folds"), tensors.get("fold_votes")
    if of is None:
        return None, novelty
    whole = of.shape == (len(ids),) and of.dtype == torch.int64 and bool(((of >= 0) & (of < FOLDS)).all())
    if not whole or model.ensemble_size % FOLDS:
        raise StorageError(
            f"its folds must be a whole number below {FOLDS} per calibration row, of a multiple of {FOLDS} networks; "
            f"got shape {tuple(of.shape)} and {model.ensemble_size} networks"
        )
    folds = Folds(ids, of.numpy(), model.ensemble_size)
    if votes is None:
        return folds, novelty
    own = None
    if "fold_h" in tensors:
        own, novelty = _fold_voters(stored, target, model, novelty, device)
    n = len(own or references.members or references)
    if votes.shape != (n, FOLDS) or not ((votes >= 0) & votes.isfinite()).all():
        raise StorageError(
            f"the {n} voters of its folds must have {FOLDS} numbers of votes each, none below 0; got shape "
            f"{tuple(votes.shape)}"
        )
    if references.members is not None:
        return folds.knowing(references, votes.numpy()), novelty
    if own is not None:
        return replace(folds, few=Representatives.found(own, votes.numpy(), references)), novelty
    # Saved before the models of folds had their own representatives: choose these among the calibration rows.
    known = rows.y >= 0
    here = torch.as_tensor(known, device=device)
    own = _like(references, rows.h[here], rows.y[known], rows.ids[known], rows.exact[known])
    if novelty.known is not None:
        novelty = replace(novelty, known=novelty.known.joined(rows.z, rows.ids))
    few = Representatives.found(own, folds.condensed(references, own), references)
    return replace(folds, few=few), novelty


def _fold_voters(
    stored: Stored, target: Target, model: WeightedAverage, novelty: Novelty, device: torch.device
) -> tuple[ReferenceSet, Novelty]:
    """The representatives in the models of the folds; their raw features join the novelty of the model."""
    ids, tensors = _ids(stored.config["fold_ids"]), stored.tensors
    h, y, exact = tensors["fold_h"].to(device), tensors["fold_y"], tensors.get("fold_target")
    _check_rows("representatives", h, y, len(ids), target.n_codes, model.vector_size)
    z, rows = tensors.get("fold_z"), tensors.get("fold_known")
    if novelty.known is not None and z is not None and rows is not None:
        fits = z.shape == (len(rows), model.n_compared_features) and bool(((rows >= 0) & (rows < len(ids))).all())
        if not fits or len(rows.unique()) != len(rows):
            raise StorageError(f"the features of its representatives do not fit the model; got shape {tuple(z.shape)}")
        novelty = replace(novelty, known=novelty.known.joined(z.to(device), ids[rows.numpy()]))
    return _like(model.references, h, y, ids, exact), novelty


def _like(references: ReferenceSet, h: Tensor, y: Any, ids: pd.Index[Any], exact: Any) -> ReferenceSet:
    """Other voters of the same kind, one vote each."""
    return ReferenceSet(
        h,
        y,
        ids.tolist(),
        references.n_classes,
        references.kernel,
        references.class_weights,
        look_alikes=references.voters.look_alikes,
        targets=None if references.targets is None else exact,
    )


def _agreement(value: Any) -> Agreement | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 4 or not all(isinstance(v, int | float) for v in value):
        raise StorageError(f"its agreement must be three shares and a number of rows; got {value!r:.100}")
    share, low, high, n = value
    if type(n) is not int or n < 1 or not 0 <= low <= share <= high <= 1:
        raise StorageError(f"its agreement must be three shares and a number of rows; got {value!r:.100}")
    return Agreement(float(share), float(low), float(high), n)


def _descriptions(value: Any, n_groups: int) -> list[str | None] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != n_groups or not all(isinstance(v, str | None) for v in value):
        raise StorageError(f"its descriptions must be {n_groups} texts, one per group of voters; they are not")
    return value


def _share(value: Any, name: str, possible: bool) -> float:
    """The weight of the coordinates."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    if not number or (value and not possible):
        raise StorageError(f"its {name} must be a number of at least 0, and 0 without coordinates; got {value!r}")
    return float(value)


def _unpack_features(config: Mapping[str, Any], encoder: Encoder) -> Features:
    n_features, names = config["n_features"], [decode_value(name) for name in config["features"]]
    known = [column.name for column in encoder.columns] if isinstance(encoder, TabularEncoder) else names
    if names and names != known:
        raise StorageError(f"its features must be the encoder's columns, {known!r:.200}; got {names!r:.200}")
    if n_features is not None and known and n_features != len(known):
        raise StorageError(f"its number of features must be {len(known)}, the number of names; got {n_features!r}")
    return Features(None if n_features is None else int(n_features), np.array(names, dtype=object) if names else None)


def _unpack_references(
    stored: Stored, kernel: str, target: Target, model: WeightedAverage, device: torch.device
) -> list[Any]:
    """Restore the stored voters; returns their ids."""
    if stored.examples is None:
        raise StorageError("the file of training examples, which holds their ids, is missing")
    tensors, held = stored.tensors, stored.examples.index
    if tensors["ref_h"].ndim != 2 or tensors["ref_h"].shape[1] != model.vector_size:
        raise StorageError(
            f"its voters' embeddings must have shape (n, {model.vector_size}), like the network's output; "
            f"got {tuple(tensors['ref_h'].shape)}"
        )
    ids = _merged(held.tolist(), stored.config["without_record"])
    ref_h, ref_y, by_class = tensors["ref_h"].to(device), tensors["ref_y"].to(device), tensors.get("class_weights")
    weights, condensed = tensors.get("ref_weight"), stored.config["condensed"]
    if type(condensed) is not bool or (condensed and weights is not None):
        raise StorageError(
            f"condensed must be true or false, and false where voters have weights; got {condensed!r:.100}"
        )
    sizes = None if weights is None else tensors["ref_size"]
    n_codes, numbers = target.n_codes, target.kind == NUMBERS
    exact = tensors["ref_target"] if numbers else None
    if exact is not None and exact.shape != (len(ref_h), target.table.shape[1]):
        raise StorageError(f"its voters must have one target each; got shape {tuple(exact.shape)}")
    if stored.rows:
        rows = {_ROWS[name]: own for name, own in stored.rows.items() if numbers or name != "ref_target"}
        references = mapped_set(rows, ids=ids, n_classes=n_codes, kernel=kernel, class_weights=by_class)
    else:
        references = ReferenceSet(ref_h, ref_y, ids, n_codes, kernel, by_class, weights, sizes, targets=exact)
    if "look_alikes" in tensors:
        references = references.replaced(look_alikes=tuple(tensors["look_alikes"].tolist()))
    references = with_groups(references, tensors["ref_leaf"], tensors["leaf_group"], tensors["leaf_factor"])
    model.references = references.condensed() if condensed else references
    return ids


def _unpack_examples(stored: Stored, encoder: Encoder) -> Examples:
    """The records of the voters that have one."""
    examples, frame = Examples(), stored.examples
    assert frame is not None
    if isinstance(encoder, ImageEncoder):
        encoder.check_records(frame)
    if frame.shape[1]:
        examples.add(frame.index, frame)
    return examples


def _novelty(stored: Stored, ids: list[Any], model: WeightedAverage, device: torch.device) -> Novelty:
    """The novelty of the model; for a table with examples, with raw features."""
    z, rows, width = stored.tensors["known_z"], stored.tensors["known_rows"], model.n_compared_features
    if width == 0 or z.ndim != 2 or z.shape[1] != width or rows.shape != (len(z),):
        raise StorageError(
            f"the features of its voters must have shape (n, {width}), with n row numbers; got {tuple(z.shape)} and "
            f"{tuple(rows.shape)}"
        )
    places = rows.tolist()
    if len({*places}) != len(places) or not all(0 <= row < len(ids) for row in places):
        raise StorageError(
            f"the row numbers of its voters' features must be distinct and below {len(ids)}; they are not"
        )
    known = Known(z.to(device), [ids[row] for row in places])
    value = stored.config["novelty"]
    if value is None:
        return Novelty(known)
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_usual, value)):
        raise StorageError(f"its novelty must be two pairs: a median and a spread above 0; got {value!r:.100}")
    return Novelty(known, (Usual(*value[0]), Usual(*value[1])))


def _is_usual(pair: Any) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    return all(type(number) is float and math.isfinite(number) for number in pair) and pair[1] > 0


def _merged(held: list[Any], others: list[Any]) -> list[Any]:
    """All ids in order: those with a record, and those without, given as [row, id]."""
    apart = {row: decode_value(name) for row, name in others}
    n = len(held) + len(others)
    if len(apart) != len(others) or not all(type(row) is int and 0 <= row < n for row in apart):
        raise StorageError(f"the examples without a record must have distinct row numbers below {n}; they do not")
    names = iter(held)
    return [apart[row] if row in apart else next(names) for row in range(n)]


# Checks of stored values


def _of(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}."): value for name, value in tensors.items() if name.startswith(f"{part}.")}


def _check_shapes(part: str, wanted: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> None:
    """Compare the shapes that a network needs with the stored ones."""
    held = {name: tuple(value.shape) for name, value in _of(part, tensors).items()}
    for name in {**wanted, **held}:
        if wanted.get(name) != held.get(name):
            raise StorageError(
                f"{part}.{name} must have shape {wanted.get(name, 'none: the network has no such weights')}; "
                f"{held.get(name, 'nothing')} is stored; "
                "give the module that the model was trained with, or restore the folder from a copy"
            )


def _check_weights(part: str, network: nn.Module) -> None:
    running = [
        (name, value) for name, value in network.named_buffers() if name.endswith(("running_mean", "running_var"))
    ]
    for name, value in [*network.named_parameters(), *running]:
        if not bool(value.isfinite().all()) or (name.endswith("running_var") and bool((value < 0).any())):
            raise StorageError(f"{part}.{name} must hold finite numbers; it does not; restore the folder from a copy")


def _check_numbers(tensors: Mapping[str, Tensor]) -> None:
    """Check dwac's own tensors: labels and rows must be whole numbers, everything else real and finite."""
    for name, value in tensors.items():
        if name.startswith("backbone.") or name == "shard_images":
            continue
        whole = name in _WHOLE
        real = value.is_floating_point() and bool(value.float().isfinite().all())
        right = value.dtype == torch.int64 if whole else real
        if not right:
            raise StorageError(f"{name} must hold {'whole' if whole else 'finite'} numbers; it is of {value.dtype}")


_SAME_SHAPE = ("mul", "__mul__", "__rmul__", "div", "__truediv__", "div_", "normal_", "uniform_")


class _Rehearsal(TorchFunctionMode):
    """Counts operations; constants (category counts, means) stay real, because a network may compute with them."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.calls = most, 0

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        if self.calls > self.most:
            raise StorageError("its config describes a network of many more layers than are stored")
        kwargs = {"device": "cpu", **(kwargs or {})} if function is torch.tensor else kwargs or {}
        # Computing without memory would import PyTorch's compiler, which takes seconds, only to find shapes.
        if function in (torch.randn, torch.rand):
            function = torch.empty
        elif getattr(function, "__name__", "") in _SAME_SHAPE:
            tensors = [value for value in args if isinstance(value, Tensor)]
            if len(tensors) == 1 and tensors[0].is_meta:
                return tensors[0]
        return function(*args, **kwargs)


def rehearse(encoder: Encoder, ensemble_size: int, tensors: Mapping[str, Tensor]) -> None:
    """Build the network without memory and compare shapes: a few characters of JSON could ask for terabytes."""
    # If building is interrupted, a torch.no_grad() might not be undone, because undoing it is an operation too.
    try:
        as_it_was = torch.set_grad_enabled(torch.is_grad_enabled())
        with as_it_was, torch.device("meta"), _Rehearsal(10_000 + 100 * len(tensors)):
            network = backbone(encoder, ensemble_size)
    except (RuntimeError, NotImplementedError, InputError):
        if isinstance(encoder, ImageEncoder) and encoder.settings["network"].startswith("timm:"):
            return  # some timm networks cannot be built this way; their size follows from their name, not the folder
        raise
    state = network.state_dict()
    _check_shapes("backbone", {name: tuple(value.shape) for name, value in state.items()}, tensors)
    made = sum(value.nbytes for name, value in network.named_buffers() if name not in state)
    if made > _MOST_BYTES:
        raise StorageError(
            f"its network would compute {made:,} bytes besides its weights; at most {_MOST_BYTES:,} are allowed"
        )


def _check_rows(part: str, h: Tensor, y: Tensor, n_ids: int, n_classes: int, size: int) -> None:
    whole = y.dtype == torch.int64 and y.ndim == 1
    if not whole or h.ndim != 2 or not n_ids == len(y) == len(h) or (len(h) and h.shape[1] != size):
        raise StorageError(
            f"its {part} must have equally many ids, labels (n,) and embeddings (n, {size}); "
            f"got {n_ids}, {tuple(y.shape)} of {y.dtype} and {tuple(h.shape)}"
        )
    least = -1 if part == "calibration" else 0  # -1: a label that was not in training
    if len(y) and not (int(y.min()) >= least and int(y.max()) < n_classes):
        raise StorageError(f"its {part} labels must lie in {least} … {n_classes - 1}; got {y.min()} … {y.max()}")
    if not h.is_floating_point() or not bool(h.isfinite().all()):
        raise StorageError(f"its {part} embeddings must be finite numbers")


def _packed(value: Any) -> Any:
    if isinstance(value, Mapping):  # class_weight: labels may be anything hashable
        return {"pairs": [[encode_value(key), float(weight)] for key, weight in value.items()]}
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(value: Any) -> Any:
    return {decode_value(key): weight for key, weight in value["pairs"]} if isinstance(value, Mapping) else value


def _classes(encoded: list[Any], kind: str) -> NDArray[Any]:
    """(K,) labels of a NumPy type; an error names a label that would change when stored."""
    dtype = np.dtype(kind)
    if dtype.kind not in _LABELS or dtype.itemsize * len(encoded) > _MOST_BYTES:
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


def _ids(values: Iterable[Any]) -> pd.Index[Any]:
    if not isinstance(values, list):
        raise StorageError(f"ids must be a list; got {values!r:.100}")
    index: pd.Index[Any] = pd.Index([decode_value(value) for value in values], tupleize_cols=False)
    if not index.is_unique:
        raise StorageError(f"ids must be unique; {index[index.duplicated()][0]!r} is repeated")
    return index
