"""The certificate of an exact deletion: which networks were retrained, from which rows, and the resulting hashes.

certificate = clf.forget(["customer-7"], exact=True).deletions_[-1]
certificate.save("customer-7.json")
certificate.covers("customer-7")       # True
certificate.verify(clf)                # True: and of a model that was fitted without the row
"""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from dwac.errors import StorageError
from dwac.storage import encode_value, replace_file

_PACKAGES = ("dwac", "torch", "numpy", "pandas", "scikit-learn")


@dataclass(frozen=True)
class Retrained:
    """A retrained network: its seed, its remaining rows, and the SHA-256 of its weights."""

    shard: int
    seed: int
    rows: int
    rows_sha256: str  # of their ids, contents, targets and weights
    before: str
    after: str


@dataclass(frozen=True)
class Certificate:
    """Certifies that rows were deleted exactly: the model is, bit for bit, the one that `fit` gives without them.

    It does not contain ids: `covers` says whether an id was deleted. (Anyone who can guess an id can check it, too.)
    The bits repeat on the same machine and device, with the same versions and number of threads.

    Attributes:
        made: when, in UTC. ids: for each deleted row a salt, and the SHA-256 of its id with the salt.
        shards: how many networks there are. retrained: those that saw the rows; every other one is as it was.
        before, after: SHA-256 of the model: all weights, the voters, and the calibration rows.
        rows: how many rows the model holds now. seconds: how long it took.
        versions, machine, device, threads: what the bits depend on.
    """

    made: str
    ids: tuple[str, ...]
    shards: int
    retrained: tuple[Retrained, ...]
    before: str
    after: str
    rows: int
    seconds: float
    versions: dict[str, str]
    machine: str
    device: str
    threads: int

    @classmethod
    def of(cls, ids: Iterable[str], **facts: Any) -> Self:
        """A certificate for these ids, each from `hash_id`; made now and on this machine."""
        return cls(
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            ids=tuple(ids),
            versions={"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
            machine=f"{platform.system()} {platform.machine()}",
            **facts,
        )

    def covers(self, name: Any) -> bool:
        """Whether the row with this id was deleted."""
        return any(hash_id(name, each.partition(":")[0]) == each for each in self.ids)

    def verify(self, clf: Any) -> bool:
        """Whether a model matches this certificate bit for bit: after the deletion, or fitted without the rows."""
        return fingerprint(clf.fitted_) == self.after

    def to_dict(self) -> dict[str, Any]:
        """The certificate as JSON values."""
        values = asdict(self)
        return values | {"ids": list(self.ids), "retrained": [asdict(each) for each in self.retrained]}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The certificate from the values of `to_dict`."""
        try:
            known = {field.name: values[field.name] for field in fields(cls)}
            retrained = tuple(Retrained(**each) for each in values["retrained"])
            return cls(**known | {"ids": tuple(values["ids"]), "retrained": retrained})
        except (KeyError, TypeError) as error:
            raise StorageError(f"a certificate must have the entries that dwac wrote; it does not: {error}") from None

    def save(self, path: str | PathLike[str]) -> Path:
        """Write it as JSON."""
        replace_file(Path(path), json.dumps(self.to_dict(), indent=2).encode() + b"\n")
        return Path(path)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Self:
        """The certificate that `save` wrote."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except ValueError as error:
            raise StorageError(f"{path} must be a certificate that dwac wrote; it is not: {error}") from None


def fingerprint(fitted: Any) -> str:
    """SHA-256 of a fitted model: all weights, the voters, and the embedded calibration rows."""
    model, references, held = fitted.model, fitted.references, fitted.calibration
    chosen = [model.raw_feature_weight, references.voters.look_alikes, references.class_weights.tolist()]
    text = json.dumps([_encoded(references.ids), _encoded(held.ids), *chosen])
    voters = {"h": references.embeddings, "y": references.labels}
    rows = {"held_h": held.h, "held_y": torch.as_tensor(held.y), "held_exact": torch.as_tensor(held.exact)}
    if references.targets is not None:
        voters["targets"] = references.targets
    networks = [*model.backbone.state_dict().items(), *model.embedding.state_dict().items()]
    return sha256(text, [*networks, *voters.items(), *rows.items()])


def weights_sha256(network: nn.Module) -> str:
    """SHA-256 of the weights of a network."""
    return sha256("", network.state_dict().items())


def sha256(text: str, tensors: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 of a text and named tensors."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in tensors:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():  # an empty tensor has no bytes to view
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _encoded(ids: Any) -> list[Any]:
    """Ids as JSON values; strings and numbers, the usual ids, need no encoding."""
    names = ids.tolist()
    return names if {*map(type, names)} <= {int, str} else [encode_value(name) for name in names]


def hash_id(name: Any, salt: str | None = None) -> str:
    """A salt, and the SHA-256 of an id with that salt; by default a new salt."""
    salt = secrets.token_hex(16) if salt is None else salt
    return f"{salt}:{hashlib.sha256(f'{salt} {id_text(name)}'.encode()).hexdigest()}"


def id_text(name: Any) -> str:
    """An id as JSON; NumPy numbers are written as the equal Python numbers."""
    plain = name.item() if isinstance(name, np.generic) else name
    return json.dumps(encode_value(plain), ensure_ascii=False, sort_keys=True)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
