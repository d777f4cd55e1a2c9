"""Training checkpoints: one safetensors file from which training continues as if it had never stopped.

    moments, facts = flatten_optimizer(optimizer)
    tensors = network.state_dict() | moments | rng_state(device)
    save_checkpoint("run.safetensors", tensors, {"optimizer": facts, "epoch": 3})

    tensors, facts = read_checkpoint(checkpoint_bytes("run.safetensors"), "run.safetensors")
    restore_optimizer(optimizer, tensors, facts["optimizer"])
    restore_rng(tensors, device)

The file is written completely or not at all, verified when it is read, and contains only numbers and JSON: no pickle.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dwac.errors import DwacError, InputError, StorageError
from dwac.storage.files import TEMPORARY, locked, make_folder, remove_files, replace_file, sync_folder
from dwac.storage.folder import dwac_version
from dwac.storage.tensors import pack_tensors, plain_tensors, unpack_tensors
from dwac.storage.values import decode_value, encode_value, json_text

logger = logging.getLogger(__name__)

FORMAT = "dwac-checkpoint"
VERSION = 1
_LARGEST_FACTS = 9 * 10**7  # bytes of JSON; a safetensors header, with names and shapes, has at most 10⁸ bytes
_COMPUTING = ("foreach", "fused", "capturable", "differentiable")  # how an optimizer computes, not what it computes


def save_checkpoint(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint, atomically replacing an earlier one.

    Args:
        path: the file; parent folders are created.
        tensors: dense tensors on any device.
        facts: JSON values; nan and infinity are allowed, because the best loss so far may be infinite.
    """
    target = Path(path)
    text = json_text(facts, "facts", finite=False)
    if len(json.dumps(text)) > _LARGEST_FACTS:
        raise InputError(f"facts must fit a safetensors header; got {len(text):,} bytes of JSON; store them as tensors")
    plain = plain_tensors(tensors)
    about = {"format": FORMAT, "version": str(VERSION), "dwac": dwac_version(), "facts": text}
    data = pack_tensors(plain, about | {"sha256": _digest(plain, text)})
    try:
        make_folder(target.parent)
        with locked(target.parent):
            remove_files(target.parent, TEMPORARY, keep=set())  # left by writers that were killed
            replace_file(target, data)
            sync_folder(target.parent)
    except OSError as error:
        raise StorageError(f"could not write {target}: {error}; an earlier checkpoint there is unchanged") from error


def checkpoint_bytes(path: str | os.PathLike[str]) -> bytes:
    """The whole file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StorageError(f"could not read a checkpoint from {path}: {error}") from error


def read_checkpoint(data: bytes, path: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and the facts of a checkpoint from its bytes; path: for error messages."""
    tensors, about = unpack_tensors(data, path)
    version = about.get("version", "")
    if about.get("format") != FORMAT or not version.isdecimal() or len(version) > 9:
        raise StorageError(f"{path} is a safetensors file, but not a checkpoint of dwac; give the path of a checkpoint")
    if int(version) > VERSION:
        raise StorageError(
            f"{path} was written by a newer dwac: format {version}; this version reads up to {VERSION}; upgrade dwac"
        )
    text = about.get("facts", "")
    if about.get("sha256") != _digest(tensors, text):
        raise StorageError(f"{path} does not match its SHA-256, so it was altered or damaged; use an earlier copy")
    try:
        return tensors, dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise StorageError(f"{path} contains no facts that dwac wrote: {error!s:.200}; use an earlier copy") from error


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Copy an optimizer's tensors (moments, steps), and return the rest of its state as JSON facts.

    The names of the tensors begin with "optimizer.", so that they can be saved together with those of a network.
    """
    tensors: dict[str, Tensor] = {}
    state = _flatten(optimizer.state_dict(), "optimizer", tensors)
    return tensors, {"class": type(optimizer).__name__, "shapes": _shapes(optimizer), "state": state}


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Load the flattened state into a new optimizer of the same class over the same parameters.

    The state moves to the devices of the parameters. How the optimizer computes (fused, foreach, capturable) stays the
    same, and so does whether a rate is a float or a tensor: training from a GPU checkpoint may continue on a CPU.
    """
    for what, now in (("class", type(optimizer).__name__), ("shapes", _shapes(optimizer))):
        if facts.get(what) != now:
            raise InputError(
                f"the optimizer must match the saved one: {what} {facts.get(what)!r:.200} was saved, got "
                f"{now!r:.200}; build network and optimizer as in the first run"
            )
    try:
        state = _unflatten(facts["state"], tensors)
        for saved, group in zip(state["param_groups"], optimizer.param_groups, strict=True):
            for name, value in saved.items():
                stays = name in _COMPUTING and name in group
                saved[name] = group[name] if stays else _convert(value, group.get(name))
        optimizer.load_state_dict(state)
    except (DwacError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise InputError(
            f"the optimizer's state cannot be restored ({type(error).__name__}: {error!s:.300}); "
            "give tensors and facts of the same checkpoint"
        ) from error


def rng_state(device: str | torch.device) -> dict[str, Tensor]:
    """The states of torch's random number generators: of the CPU, and of the device if it is a GPU."""
    states = {"rng.cpu": torch.get_rng_state()}
    if torch.device(device).type == "cuda":
        states["rng.cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_rng(tensors: Mapping[str, Tensor], device: str | torch.device) -> None:
    """Restore torch's random number generators from the states of `rng_state` among the tensors of a checkpoint."""
    if "rng.cpu" not in tensors:
        raise InputError("the tensors must contain the states of rng_state; 'rng.cpu' is missing")
    try:
        if torch.device(device).type == "cuda" and "rng.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["rng.cuda"], device)
        elif torch.device(device).type == "cuda":
            logger.warning("the checkpoint is from a CPU: the random number generator of %s is left unchanged", device)
        torch.set_rng_state(tensors["rng.cpu"])
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"a random number generator's state does not fit this version of torch: {error}; use the one that saved it"
        ) from error


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """SHA-256 of the facts and of every tensor: name, type, shape and bytes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _shapes(optimizer: torch.optim.Optimizer) -> list[list[list[int]]]:
    return [[list(parameter.shape) for parameter in group["params"]] for group in optimizer.param_groups]


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Convert a tree of dicts, lists and tuples to JSON; its tensors go into `tensors`, keyed by path."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().to("cpu", copy=True)
        return {"tensor": name}
    if isinstance(value, Mapping):
        parts = [(key, _flatten(part, f"{name}.{key}", tensors)) for key, part in value.items()]
        return {"dict": [[encode_value(key), part] for key, part in parts]}
    if isinstance(value, list | tuple):
        parts = [_flatten(part, f"{name}.{i}", tensors) for i, part in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": parts}
    return {"value": encode_value(value)}


def _unflatten(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    [(kind, body)] = tree.items()
    if kind == "tensor":
        return tensors[body]
    if kind == "dict":
        return {decode_value(key): _unflatten(part, tensors) for key, part in body}
    if kind in ("list", "tuple"):
        parts = [_unflatten(part, tensors) for part in body]
        return tuple(parts) if kind == "tuple" else parts
    return decode_value(body)


def _convert(saved: Any, current: Any) -> Any:
    """A hyperparameter in the optimizer's current form: a float, or a tensor on its device."""
    if isinstance(current, Tensor):
        return torch.as_tensor(saved, dtype=current.dtype, device=current.device)
    return saved.item() if isinstance(saved, Tensor) and isinstance(current, float) else saved
