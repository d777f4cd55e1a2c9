"""`load`: a saved model, classifier or regressor, from its folder.

A folder may come from anywhere. So everything is checked before use: it must be valid, consistent, and take no more
memory than the files do.
"""

from __future__ import annotations

import copyreg
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac import storage
from dwac.encoders import ENCODERS, Encoder, HuggingFaceEncoder, ImageEncoder, ModuleEncoder, TabularEncoder
from dwac.encoders.sharded import SHARDED
from dwac.errors import DwacError, InputError, StorageError
from dwac.estimator.certificate import Certificate
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.fit.network import new_model
from dwac.estimator.fitted import Descriptions, Features, Fitted, Origin
from dwac.estimator.held_out import Folds, HeldOutRows, Representatives
from dwac.estimator.novelty import Novelty, Usual
from dwac.estimator.preparation import Examples
from dwac.estimator.regressor import DWACRegressor
from dwac.estimator.saving import SHARD_COLUMNS, labels_of
from dwac.estimator.settings import FitSettings, device_of, parameters
from dwac.estimator.shards import ShardRows, Shards
from dwac.estimator.stored import (
    load_weights,
    read_agreement,
    read_descriptions,
    read_group_count,
    read_groups,
    read_groups_profile,
    read_ids,
    read_legend,
    read_shift,
    read_weight,
    require,
    sizes_of,
)
from dwac.explain.descriptions import GroupTexts
from dwac.nn import WeightedAverage
from dwac.reference import ReferenceSet
from dwac.reference.files import mapped_set
from dwac.reference.novelty import Known
from dwac.reference.references import with_groups
from dwac.storage import Stored, decode_value
from dwac.tasks import CLASSES, Numbers, Target, restore_target
from dwac.training.cross_fit import FOLDS

_VOTERS = {  # tensors of voters, and their names in a reference set; with mapped voters these stay in the file
    "ref_h": "embeddings",
    "ref_y": "labels",
    "ref_target": "targets",
    "ref_weight": "weights",
    "ref_size": "sizes",
}


class _ModuleNeededError(InputError):
    """The folder is fine, but the caller must give the network."""


def load(
    path: str | PathLike[str],
    *,
    device: str = "auto",
    module: torch.nn.Module | None = None,
    mapped: bool = False,
    expect: str | None = None,
) -> DWACClassifier | DWACRegressor:
    """The model that `save` wrote to a folder. Nothing in the folder is ever executed.

    path: the folder, or hf://owner/name[@revision] for a model on the Hugging Face Hub, which needs `dwac[hub]`.
    module: the network, if the model was trained with one of your own. mapped: leave the voters in the folder, and read
    them block by block for each prediction: the same answers, for voters that do not fit into memory, on a CPU. Voters
    cannot be added or removed then, and the folder must stay as it is. expect: the fingerprint that the folder must
    have (`dwac.fingerprint(path)`, printed by `dwac train`); a folder with another one is refused unread.
    """
    if mapped and device_of("cpu" if device == "auto" else device).type != "cpu":
        raise InputError(f"voters that stay in their file are asked on a CPU; got device={device!r}; use device='cpu'")
    device = "cpu" if mapped else device
    left = frozenset(_VOTERS) if mapped else ()
    path = storage.local_folder(path)
    stored = storage.read_model(path, most_examples=_most_examples, mapped=left, expect=expect)
    with _named_errors(path):
        encoder = encoder_of(stored.config)
        if isinstance(encoder, ModuleEncoder):
            encoder.module = module
        target = _target_of(stored)
        kind = DWACRegressor if isinstance(target, Numbers) else DWACClassifier
        estimator = kind(**_settings_of(stored.config, encoder))
        estimator.device = device
        settings = estimator._settings()
        network = new_model(settings, encoder, target, *sizes_of(stored, encoder, module))
        estimator.fitted_ = _unpack(settings, stored, encoder, target, network, device_of(device))
    return estimator


@contextmanager
def _named_errors(path: str | PathLike[str]) -> Iterator[None]:
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


def _most_examples(tensors: Mapping[str, Tensor]) -> int:
    """The most records that a stored model may have: one per voter."""
    voters = tensors.get("ref_y")
    return len(voters) if voters is not None and voters.ndim else 0


def encoder_of(config: Mapping[str, Any]) -> Encoder:
    """The fitted encoder."""
    kind, learned = config["encoder"]["kind"], config["encoder"]["config"]
    require(kind in ENCODERS, f"unknown encoder {kind!r}; this version of dwac has {', '.join(ENCODERS)}")
    sharded = "shards" in learned
    require(not sharded or kind in SHARDED, f"an encoder for {kind!r} has no shards; restore the folder from a copy")
    encoder: Encoder = (SHARDED if sharded else ENCODERS)[kind].from_config(learned)
    if isinstance(encoder, HuggingFaceEncoder | ImageEncoder):
        encoder.settings["local_files_only"] = True  # a folder must not decide what is downloaded
    return encoder


def _settings_of(config: Mapping[str, Any], encoder: Encoder) -> dict[str, Any]:
    """The constructor's parameters."""
    if isinstance(encoder, ModuleEncoder) and encoder.module is None:
        raise _ModuleNeededError(
            "this model was trained with a network of your own; pass that network: dwac.load(path, module=…)"
        )
    name = config["encoder"]["asked"]
    settings = {name: _unpack_setting(value) for name, value in config["settings"].items()}
    head = settings.pop("head", "dwac")  # stored in folders until 1.0.0rc1
    require(
        head == "dwac",
        f"its head must be 'dwac', in which training examples vote; got {head!r:.60}, which models no longer have; "
        "train the model again, or load it with dwac 1.0.0rc1",
    )
    return {**parameters(settings), "encoder": encoder if name is None else name, "checkpoint": None}


def _unpack_setting(value: Any) -> Any:
    return {decode_value(key): weight for key, weight in value["pairs"]} if isinstance(value, Mapping) else value


def _target_of(stored: Stored) -> Target:
    """The target of the model."""
    config, empty = stored.config, torch.zeros(0, 0)
    table, scale = (stored.tensors.get(name, empty).double().numpy() for name in ("target_table", "target_scale"))
    forms = {name: config.get(name) is True for name in ("listed", "single")}
    names = labels_of(config["classes"], config["classes_type"])
    return restore_target(config.get("task", CLASSES), names, table, scale, **forms)


def _unpack(
    settings: FitSettings,
    stored: Stored,
    encoder: Encoder,
    target: Target,
    model: WeightedAverage,
    device: torch.device,
) -> Fitted:
    """The stored model; model: a new network of its sizes."""
    config, tensors = stored.config, stored.tensors
    settings.check()
    load_weights(model, tensors)
    model = model.to(device).eval()
    history = pd.DataFrame(config["history"])
    history.attrs["ended"] = config["ended"]
    validation_ids, calibration_ids = read_ids(config["validation_ids"]), read_ids(config["calibration_ids"])
    model.raw_feature_weight = read_weight(config["raw_feature_weight"], possible=model.n_raw_features > 0)
    calibration = _unpack_rows("calibration", tensors, calibration_ids, target, model, device)
    kept = "validation_h" in tensors
    validation = calibration.without(calibration_ids)
    if kept:
        validation = _unpack_rows("validation", tensors, validation_ids, target, model, device)
    features = _unpack_features(config, encoder)
    ids = _unpack_references(stored, settings.kernel, target, model, device)
    novelty = Novelty(directions=encoder.kind != "tabular")
    if "known_z" in tensors:
        novelty = _unpack_novelty(stored, ids, model, device)
    folds, novelty = _unpack_folds(stored, target, model, calibration, novelty, device)
    if isinstance(encoder, HuggingFaceEncoder):  # checks that the library's network accepts its tokeniser's output
        with torch.no_grad():
            model.embed(tuple(part.to(device) for part in encoder.transform(["a"])))
    groups = model.references.groups
    texts = read_descriptions(config["descriptions"], len(groups))
    profile = read_groups_profile(config.get("profile"), tensors.get("profile"), len(groups))
    return Fitted(
        settings=settings,
        encoder=encoder,
        model=model,
        target=target,
        history=history,
        examples=_unpack_examples(stored, encoder),
        novelty=novelty,
        validation=validation,
        validation_ids=validation_ids,
        calibration=calibration,
        features=features,
        folds=folds,
        shards=unpack_shards(config.get("shards"), tensors, stored.all_rows),
        within=read_groups(config.get("groups"), calibration_ids),
        n_groups=read_group_count(config.get("calibration_groups"), len(calibration_ids)),
        shift=read_shift(config.get("shift"), tensors.get("shift"), 1 if folds is None else FOLDS, model.vector_size),
        private=bool(config["private"]),
        legend=read_legend(config.get("names", [])),
        target_columns=_unpack_names(config.get("target_columns", [])),
        deletions=tuple(Certificate.from_dict(values) for values in config.get("deletions", [])),
        stored_agreement=read_agreement(config["agreement"]),
        stored_descriptions=Descriptions(
            texts if texts is None or profile is None else GroupTexts(texts, profile), groups
        ),
        origin=Origin(stored.fingerprint, model.references.voters),
    )


def _unpack_names(names: Any) -> tuple[str, ...]:
    known = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
    require(known, f"the columns of its target must be names; got {names!r:.200}")
    return tuple(names)


def _unpack_features(config: Mapping[str, Any], encoder: Encoder) -> Features:
    n_features, names = config["n_features"], [decode_value(name) for name in config["features"]]
    known = [column.name for column in encoder.columns] if isinstance(encoder, TabularEncoder) else names
    require(
        not names or names == known, f"its features must be the encoder's columns, {known!r:.200}; got {names!r:.200}"
    )
    fits = n_features is None or not known or n_features == len(known)
    require(fits, f"its number of features must be {len(known)}, the number of names; got {n_features!r}")
    return Features(None if n_features is None else int(n_features), np.array(names, dtype=object) if names else None)


# Voters and their records


def _unpack_references(
    stored: Stored, kernel: str, target: Target, model: WeightedAverage, device: torch.device
) -> list[Any]:
    """Restore the stored voters; returns their ids."""
    if stored.examples is None:
        raise StorageError("the file of training examples, which holds their ids, is missing")
    tensors, shape, width = stored.tensors, tuple(stored.tensors["ref_h"].shape), model.vector_size
    require(
        len(shape) == 2 and shape[1] == width,
        f"its voters' embeddings must have shape (n, {width}), like the network's output; got {shape}",
    )
    ids = _merge_ids(stored.examples.index.tolist(), stored.config["without_record"])
    ref_h, ref_y, by_class = tensors["ref_h"].to(device), tensors["ref_y"].to(device), tensors.get("class_weights")
    weights, condensed = tensors.get("ref_weight"), stored.config["condensed"]
    sizes = None if weights is None else tensors["ref_size"]
    require(
        type(condensed) is bool and not (condensed and sizes is not None and bool((sizes != 1).any())),
        f"condensed must be true or false, and false where voters stand for others; got {condensed!r:.100}",
    )
    n_codes, exact = target.n_codes, tensors["ref_target"] if isinstance(target, Numbers) else None
    if exact is not None:
        fits = exact.shape == (len(ref_h), target.table.shape[1])
        require(fits, f"its voters must have one target each; got shape {tuple(exact.shape)}")
    if stored.rows:
        rows = {_VOTERS[name]: own for name, own in stored.rows.items() if exact is not None or name != "ref_target"}
        references = mapped_set(rows, ids=ids, n_classes=n_codes, kernel=kernel, class_weights=by_class)
    else:
        references = ReferenceSet(ref_h, ref_y, ids, n_codes, kernel, by_class, weights, sizes, targets=exact)
    if "look_alikes" in tensors:
        references = references.replaced(look_alikes=tuple(tensors["look_alikes"].tolist()))
    references = with_groups(references, tensors["ref_leaf"], tensors["leaf_group"], tensors["leaf_factor"])
    model.references = references.condensed() if condensed else references
    return ids


def _merge_ids(ids: list[Any], others: list[Any]) -> list[Any]:
    """All ids in order: those with a record, and those without, given as [row, id]."""
    apart = {row: decode_value(name) for row, name in others}
    n = len(ids) + len(others)
    fits = len(apart) == len(others) and all(type(row) is int and 0 <= row < n for row in apart)
    require(fits, f"the examples without a record must have distinct row numbers below {n}; they do not")
    names = iter(ids)
    return [apart[row] if row in apart else next(names) for row in range(n)]


def _unpack_examples(stored: Stored, encoder: Encoder) -> Examples:
    """The records of the voters that have one."""
    examples, frame = Examples(), stored.examples
    assert frame is not None
    if isinstance(encoder, ImageEncoder):
        encoder.check_records(frame)
    if frame.shape[1]:
        examples.add(frame.index, frame)
    return examples


def _unpack_novelty(stored: Stored, ids: list[Any], model: WeightedAverage, device: torch.device) -> Novelty:
    """The novelty of the model; for a table with examples, with raw features."""
    z, rows, width = stored.tensors["known_z"], stored.tensors["known_rows"], model.n_compared_features
    require(
        width > 0 and z.ndim == 2 and z.shape[1] == width and rows.shape == (len(z),),
        f"the features of its voters must have shape (n, {width}), with n row numbers; got {tuple(z.shape)} and "
        f"{tuple(rows.shape)}",
    )
    places = rows.tolist()
    fits = len({*places}) == len(places) and all(0 <= row < len(ids) for row in places)
    require(fits, f"the row numbers of its voters' features must be distinct and below {len(ids)}; they are not")
    known, usual = Known(z.to(device), [ids[row] for row in places]), stored.config["novelty"]
    if usual is None:
        return Novelty(known)
    fits = isinstance(usual, list) and len(usual) == 2 and all(map(_is_usual, usual))
    require(fits, f"its novelty must be two pairs: a median and a spread above 0; got {usual!r:.100}")
    return Novelty(known, (Usual(*usual[0]), Usual(*usual[1])))


def _is_usual(pair: Any) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    return all(type(number) is float and math.isfinite(number) for number in pair) and pair[1] > 0


# Rows that judge


def _unpack_rows(
    part: str, tensors: Mapping[str, Tensor], ids: pd.Index[Any], target: Target, model: Any, device: torch.device
) -> HeldOutRows:
    """The held-out rows: their scores are computed again, against the current references."""
    h, y, z = (tensors[f"{part}_{name}"] for name in "hyz")
    _check_rows(part, h, y, len(ids), target.n_codes, model.vector_size)
    width = model.n_compared_features if "known_z" in tensors else 0
    fits = z.ndim == 2 and len(z) == len(h) and (len(h) == 0 or z.shape[1] == width)
    require(fits, f"the features of its {len(h)} {part} rows do not fit the model; got shape {tuple(z.shape)}")
    exact = tensors.get(f"{part}_exact", torch.zeros(len(h), 0)).double().numpy()
    width = target.table.shape[1]
    require(
        target.holds(exact) and exact.shape == (len(h), width),
        f"the targets of its {len(h)} {part} rows must be {width} finite numbers each; got shape {exact.shape}",
    )
    return HeldOutRows(h.to(device, model.embedding.weight.dtype), z.to(device), y.numpy(), ids, exact)


def _check_rows(part: str, h: Tensor, y: Tensor, n_ids: int, n_classes: int, size: int) -> None:
    whole = y.dtype == torch.int64 and y.ndim == 1
    require(
        whole and h.ndim == 2 and n_ids == len(y) == len(h) and (len(h) == 0 or h.shape[1] == size),
        f"its {part} must have equally many ids, labels (n,) and embeddings (n, {size}); "
        f"got {n_ids}, {tuple(y.shape)} of {y.dtype} and {tuple(h.shape)}",
    )
    least = -1 if part == "calibration" else 0  # -1: a label that was not in training
    if len(y) and not (int(y.min()) >= least and int(y.max()) < n_classes):
        raise StorageError(f"its {part} labels must lie in {least} … {n_classes - 1}; got {y.min()} … {y.max()}")
    require(h.is_floating_point() and bool(h.isfinite().all()), f"its {part} embeddings must be finite numbers")


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
    require(
        whole and (model.ensemble_size == 1 or model.ensemble_size % FOLDS == 0),
        f"its folds must be a whole number below {FOLDS} per calibration row, of 1 or a multiple of {FOLDS} networks; "
        f"got shape {tuple(of.shape)} and {model.ensemble_size} networks",
    )
    folds = Folds(ids, of.numpy(), model.ensemble_size)
    if votes is None:
        return folds, novelty
    own = None
    if "fold_h" in tensors:
        own, novelty = _unpack_fold_voters(stored, target, model, novelty, device)
    n = len(own or references.members or references)
    require(
        votes.shape == (n, FOLDS) and ((votes >= 0) & votes.isfinite()).all(),
        f"the {n} voters of its folds must have {FOLDS} numbers of votes each, none below 0; got shape "
        f"{tuple(votes.shape)}",
    )
    if references.members is not None:
        return folds.knowing(references, votes.numpy()), novelty
    if own is not None:
        return replace(folds, few=Representatives.of_votes(own, votes.numpy(), references)), novelty
    # Saved before the models of folds had their own representatives: choose these among the calibration rows.
    known = rows.y >= 0
    here = torch.as_tensor(known, device=device)
    own = _like(references, rows.h[here], rows.y[known], rows.ids[known], rows.exact[known])
    if novelty.known is not None:
        novelty = replace(novelty, known=novelty.known.joined(rows.z, rows.ids))
    few = Representatives.of_votes(own, folds.condensed(references, own), references)
    return replace(folds, few=few), novelty


def _unpack_fold_voters(
    stored: Stored, target: Target, model: WeightedAverage, novelty: Novelty, device: torch.device
) -> tuple[ReferenceSet, Novelty]:
    """The representatives in the models of the folds; their raw features join the novelty of the model."""
    ids, tensors = read_ids(stored.config["fold_ids"]), stored.tensors
    h, y, exact = tensors["fold_h"].to(device), tensors["fold_y"], tensors.get("fold_target")
    _check_rows("representatives", h, y, len(ids), target.n_codes, model.vector_size)
    z, rows = tensors.get("fold_z"), tensors.get("fold_known")
    if novelty.known is not None and z is not None and rows is not None:
        fits = z.shape == (len(rows), model.n_compared_features) and bool(((rows >= 0) & (rows < len(ids))).all())
        require(
            fits and len(rows.unique()) == len(rows),
            f"the features of its representatives do not fit the model; got shape {tuple(z.shape)}",
        )
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


# Shards


def unpack_shards(
    config: Mapping[str, Any] | None, tensors: Mapping[str, Tensor], frame: pd.DataFrame | None
) -> Shards | None:
    """How the model was sharded; frame: all rows of fit, as `saving.pack` gives them."""
    if config is None:
        return None
    n = checks.positive_int(config["n"], "shards", minimum=2)
    stale, pending = config["stale"], config["pending"]
    hashes = isinstance(pending, list) and all(isinstance(each, str) for each in pending)
    require(hashes, "the ids that its next certificate is for must be a list of hashes; they are not")
    whole = all(type(config[name]) is int and config[name] >= 0 for name in ("seed", "threads"))
    whole = whole and isinstance(stale, list) and all(type(shard) is int and 0 <= shard < n for shard in stale)
    require(whole, "its shards must have a seed, threads and numbers of shards; they do not")
    rows = _unpack_shard_rows(n, tensors, frame) if config["rows"] else None
    threads, device = max(1, config["threads"]), str(config["device"])
    return Shards(n, config["seed"], threads, device, rows, frozenset(stale), tuple(pending))


def _unpack_shard_rows(n: int, tensors: Mapping[str, Tensor], frame: pd.DataFrame | None) -> ShardRows:
    if frame is None:
        raise StorageError("the file of the rows that its networks were trained on is missing")
    columns = {name: tensors[f"shard_{name}"].numpy() for name in SHARD_COLUMNS}
    shard, role, images = columns["shard"], columns["role"], tensors.get("shard_images")
    counts = {len(frame), *map(len, columns.values()), len(frame if images is None else images)}
    inside = len(counts) == 1 and ((shard >= 0) & (shard < n)).all() and np.isin(role, range(3)).all()
    in_order = not (np.diff(role) < 0).any() and frame.index.is_unique
    require(inside and in_order, "the rows that its networks were trained on do not fit together")
    X = frame.reset_index(drop=True) if images is None else images.numpy()
    return ShardRows(X, frame.index.rename(None), **columns)


# joblib, processes, and copies


def _to_bytes(fitted: Fitted) -> tuple[Any, ...]:
    """How joblib and others that send objects write a fitted model: the files of its folder.

    A later version of dwac reads them as it reads a folder, and changes in between are noticed.
    """
    if (fitted.references.members or fitted.references).voters.blocks:
        raise StorageError(
            "voters that stay in their file (mapped=True) cannot be sent; send the path of the model folder, and load "
            "it there: dwac.load(path, mapped=True)"
        )
    settings = {each.name: getattr(fitted.settings, each.name) for each in fields(fitted.settings)}
    estimator: Any = (DWACRegressor if settings.pop("regression") else DWACClassifier)()
    estimator.set_params(**{name: value for name, value in parameters(settings).items() if hasattr(estimator, name)})
    estimator.fitted_ = fitted
    with TemporaryDirectory(prefix="dwac-") as folder:
        keep = {"include_examples": not fitted.private, "include_members": fitted.references.members is not None}
        path = estimator.save(Path(folder, "model"), **keep)
        files = {file.name: file.read_bytes() for file in path.iterdir()}
    module = getattr(fitted.encoder, "module", None)
    return _from_bytes, (files, module, fitted.settings, fitted.stream, fitted.fingerprint)


def _from_bytes(
    files: Mapping[str, bytes], module: Any, settings: FitSettings, stream: Any, fingerprint: str | None
) -> Fitted:
    with TemporaryDirectory(prefix="dwac-") as folder:
        for name, data in files.items():
            Path(folder, Path(name).name).write_bytes(data)
        fitted = load(folder, device=str(settings.device), module=module).fitted_
    origin = None if fingerprint is None else Origin(fingerprint, fitted.references.voters)
    return replace(fitted, settings=settings, stream=stream, origin=origin)


copyreg.pickle(Fitted, _to_bytes)
