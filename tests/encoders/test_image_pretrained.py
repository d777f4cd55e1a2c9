"""Pretrained networks for images, from their own files."""

from __future__ import annotations

import json
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import dwac
from dwac.encoders import ImageEncoder, image_pretrained
from dwac.encoders.image_pretrained import PretrainedImages
from dwac.errors import InputError
from dwac.nn import WeightedAverage
from dwac.training.run import groups_of
from tests.named import refuses

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (40, 12, 10, 3), dtype=np.uint8)
Y = np.arange(40) % 2
X[Y == 1, :, :5] //= 4


@pytest.fixture(scope="module")
def tiny_vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny-vit")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.ViTModel(transformers.ViTConfig(image_size=8, patch_size=4, **sizes)).save_pretrained(folder)
    said = {
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.2, 0.1],
        "size": {"height": 8, "width": 8},
        "resample": 3,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    return folder


@pytest.fixture
def tiny_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as timm lays it out, and a library of one network."""

    class Net(nn.Module):
        def __init__(self, num_classes: int, width: int = 5) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, width, 3)
            self.blocks = nn.Sequential(nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1))
            self.fc = nn.Linear(width, num_classes) if num_classes else nn.Identity()
            self.pretrained_cfg = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "input_size": (3, 9, 7)}

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc(self.blocks(self.stem(x)).mean(dim=(2, 3)))
            return out

    def create_model(name: str, *, pretrained: bool, num_classes: int, **options: Any) -> nn.Module:
        assert (name, pretrained) == ("tiny", False)
        return Net(num_classes, **options)

    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=create_model))
    folder = tmp_path / "tiny-timm"
    folder.mkdir()
    save_file(Net(1000, 6).state_dict(), folder / "model.safetensors")
    config = {"architecture": "tiny", "num_classes": 1000, "model_args": {"width": 6}}
    (folder / "config.json").write_text(json.dumps(config | {"pretrained_cfg": {"mean": [0.1, 0.2, 0.3]}}))
    return folder


def test_a_model_reads_images_as_its_files_say(tiny_vit: Path) -> None:
    transformers = pytest.importorskip("transformers")
    encoder = ImageEncoder(tiny_vit, trained_layers="all").fit(X)
    (images,) = encoder.transform(X)
    assert images.shape == (40, 3, 12, 10)
    small = nn.functional.interpolate(images.float(), (8, 8), mode="bicubic", antialias=True).clamp(0, 255) / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in ([0.5, 0.4, 0.3], [0.2, 0.2, 0.1]))
    model = transformers.ViTModel.from_pretrained(tiny_vit).eval()
    with torch.no_grad():
        expected = model(pixel_values=(small - mean) / std).last_hidden_state[:, 0]
        torch.testing.assert_close(encoder.network().eval()(images), expected, rtol=1e-4, atol=1e-5)


def test_grey_images_and_other_ranges_are_read_like_their_bytes_in_colour(tiny_vit: Path) -> None:
    grey = X[..., 0].copy()
    grey[0, 0, :2] = 0, 255
    colour, alpha = np.repeat(grey[..., None], 3, axis=3), np.repeat(grey[..., None], 4, axis=3)
    found = []
    for images in (grey, colour, alpha, grey / 255, grey.astype(float) - 100):
        encoder = ImageEncoder(tiny_vit, trained_layers="all").fit(images)
        with torch.no_grad():
            found.append(encoder.network().eval()(*encoder.transform(images)))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-3, atol=1e-4)
    with refuses(InputError, 3, 2, "channels"):
        ImageEncoder(tiny_vit, channels="last").fit(X[..., :2])


def test_a_fixed_network_reads_each_image_once_and_is_saved_with_the_model(
    tiny_vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(tiny_vit, tmp_path / "vit")
    read: list[bool] = []
    forward = PretrainedImages.forward

    def counted(self: PretrainedImages, images: Tensor) -> Tensor:
        read.extend([self.training] * len(images))
        return forward(self, images)

    monkeypatch.setattr(PretrainedImages, "forward", counted)
    clf = dwac.DWACClassifier(f"image:{folder}", epochs=3, random_state=0, verbose=False, device="cpu").fit(X, Y)
    assert read == [False] * (1 + 40)  # one to learn the number of features
    backbone: Any = clf.model_.backbone
    assert len(backbone) == clf.model_.ensemble_size == 4
    p = clf.predict_proba(X)
    np.testing.assert_array_equal(np.concatenate([clf.predict_proba(X[i : i + 1]) for i in range(3)]), p[:3])
    clf.save(tmp_path / "model")
    shutil.rmtree(folder)
    again = dwac.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(X), p, atol=1e-6)
    assert again.explain(X[:1])[0].to_frame()["share"].sum() <= 1 + 1e-6
    encoder: Any = again.encoder_
    assert repr(encoder) == repr(clf.encoder_)
    assert str(folder) not in json.dumps(encoder.config()["model"])
    with refuses(InputError, "local_files_only=False"):
        encoder.fit(X)


def test_files_of_timm_are_read_and_lower_layers_learn_more_slowly(tiny_timm: Path) -> None:
    encoder = ImageEncoder(tiny_timm, trained_layers=1, flip=True).fit(X)
    told = encoder.config()["model"]
    assert (told["input"], told["mean"], told["std"], told["features"]) == ([3, 9, 7], [0.1, 0.2, 0.3], [0.25] * 3, 6)
    network: Any = encoder.network().eval()
    assert {name for name, part in network.named_parameters() if part.requires_grad} == {
        "body.network.blocks.1.weight",
        "body.network.blocks.1.bias",
    }
    rates = {name.split(".", 2)[2]: round(rate, 4) for name, rate in network.rates.items() if name.endswith("bias")}
    assert rates == {"stem.bias": 0.081, "blocks.0.bias": 0.09, "blocks.1.bias": 0.1}
    assert {group["share"] for group in groups_of(WeightedAverage(network, 2, n_features=6))} >= {1.0}
    (images,) = encoder.transform(X)
    with torch.no_grad():
        torch.testing.assert_close(network(images.flip(3)), network(images))
    again = ImageEncoder.from_config(json.loads(json.dumps(encoder.config())))
    assert again.network().state_dict().keys() == network.state_dict().keys()
    assert again.recipe == encoder.recipe
    larger: Any = ImageEncoder(tiny_timm, size=16).fit(X)
    assert larger.network().shared.resize.size == (16, 16)


def test_wrong_files_are_refused_with_what_to_do(tiny_timm: Path, tiny_vit: Path, tmp_path: Path) -> None:
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "net.pth").write_bytes(b"")
    for place in (pickled, pickled / "net.pth"):
        with refuses(InputError, "load('net.pth', weights_only=True"):
            ImageEncoder(place).fit(X)
    with refuses(InputError, "config.json", "local_files_only=False"):
        ImageEncoder("nobody/nothing").fit(X)
    save_file({"stem.weight": torch.zeros(6, 3, 3, 3)}, tiny_timm / "model.safetensors")
    with refuses(InputError, "tiny", 5, "stem.bias"):
        ImageEncoder(tiny_timm).fit(X)
    (tiny_timm / "config.json").write_text('{"architecture": "tiny", "model_args": {"checkpoint_path": "x.pth"}}')
    with refuses(InputError, "model_args"):
        ImageEncoder(tiny_timm).fit(X)
    other = shutil.copytree(tiny_vit, tmp_path / "bert")
    (other / "config.json").write_text('{"model_type": "bert"}')
    with refuses(InputError, "bert", "beit"):
        ImageEncoder(other).fit(X)
    with refuses(InputError, "size"):
        ImageEncoder(tiny_vit, size=20).fit(X)
    with refuses(InputError, "trained_layers"):
        ImageEncoder("resnet18", trained_layers=0)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"library": "pickle"}, ["library", "timm", "transformers"]),
        ({"input": [3, 10**6, 8]}, ["2048"]),
        ({"std": [1, 1, 0]}, ["[0.5, 0.5, 0.5, 1, 1, 0]"]),
        ({"features": None}, ["features"]),
        ({"trained_layers": "auto"}, ["trained_layers"]),
        ({"model": {"model_type": "bert"}}, ["bert"]),
        ({"model": {"model_type": "vit", "num_hidden_layers": 10**6}}, ["num_hidden_layers", 256]),
        ({"resize": None, "mean": None}, ["NoneType"]),
    ],
)
def test_a_forged_description_is_refused(change: dict[str, Any], facts: list[object]) -> None:
    right = {
        "library": "transformers",
        "model": {"model_type": "vit"},
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "input": [3, 8, 8],
        "resize": "bilinear",
        "trained_layers": 0,
        "features": 16,
    }
    image_pretrained.check_description(right)
    with refuses(InputError, *facts):
        image_pretrained.check_description(right | change)
