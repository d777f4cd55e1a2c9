"""Tensors as the bytes of a safetensors file, and back: only numbers, so there is nothing to execute."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from dwac.errors import InputError, StorageError


def plain_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor contiguous, on the CPU, and with its own memory: shared memory is copied."""
    plain: dict[str, Tensor] = {}
    taken = set()
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise InputError(f"tensor names must be strings other than '__metadata__'; got {name!r}; rename it")
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
            what = f"{tensor.layout} on {tensor.device}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InputError(f"{name} must be a dense tensor that holds numbers; got {what}; convert it first")
        own = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        memory = own.untyped_storage()
        if memory.data_ptr() in taken or memory.nbytes() != own.nbytes:
            own = own.clone()
        taken.add(own.untyped_storage().data_ptr())
        plain[name] = own
    return plain


def pack_tensors(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file."""
    try:
        return save(plain_tensors(tensors), metadata)
    except (SafetensorError, KeyError, UnicodeEncodeError) as error:
        raise InputError(f"a tensor cannot be stored as safetensors: {error}; change its dtype or its name") from error


def read_tensors(path: str, *, without: Collection[str]) -> dict[str, Tensor]:
    """The tensors of a file, copied into memory, except those in `without`."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).clone() for name in file.keys() if name not in without}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise StorageError(f"{path} must be a safetensors file: {error!s:.300}; restore a copy") from error


def unpack_tensors(data: bytes, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors in these bytes, and the metadata; `name` is the file's name, for messages."""
    try:
        tensors = load(data)  # checks that the header is true
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return tensors, header.get("__metadata__", {})
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise StorageError(
            f"{name} must be a safetensors file: {error!s:.300}; it is damaged, or something else; restore a copy"
        ) from error
