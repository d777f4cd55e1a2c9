"""`load`: a saved model, classifier or regressor, from its folder."""

from __future__ import annotations

from os import PathLike

import torch

from dwac import storage
from dwac.encoders import ModuleEncoder
from dwac.errors import InputError
from dwac.estimator import persistence
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.fit.network import new_model
from dwac.estimator.regressor import DWACRegressor
from dwac.estimator.settings import device_of
from dwac.tasks import NUMBERS


def load(
    path: str | PathLike[str],
    *,
    device: str = "auto",
    module: torch.nn.Module | None = None,
    mapped: bool = False,
    expect: str | None = None,
) -> DWACClassifier | DWACRegressor:
    """The model that `save` wrote to a folder. Nothing in the folder is ever executed.

    module: the network, if the model was trained with one of your own. mapped: leave the voters in the folder, and read
    them block by block for each prediction: the same answers, for voters that do not fit into memory, on a CPU. Voters
    cannot be added or removed then, and the folder must stay as it is. expect: the fingerprint that the folder must
    have (`dwac.fingerprint(path)`, printed by `dwac train`); a folder with another one is refused unread.
    """
    if mapped and device_of("cpu" if device == "auto" else device).type != "cpu":
        raise InputError(f"voters that stay in their file are asked on a CPU; got device={device!r}; use device='cpu'")
    device = "cpu" if mapped else device
    left = persistence.MAPPED if mapped else ()
    stored = storage.read_model(path, most_examples=persistence.most_examples, mapped=left, expect=expect)
    with persistence.reading(path):
        encoder = persistence.encoder_of(stored.config)
        if isinstance(encoder, ModuleEncoder):
            encoder.module = module
        target = persistence.target_of(stored)
        kind = DWACRegressor if target.kind == NUMBERS else DWACClassifier
        estimator = kind(**persistence.settings_of(stored.config, encoder))
        estimator.device = device
        settings = estimator._settings()
        network = new_model(settings, encoder, target, *persistence.sizes_of(stored, encoder, module))
        estimator.fitted_ = persistence.unpack(settings, stored, encoder, target, network, device_of(device))
    return estimator
