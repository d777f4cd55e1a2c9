"""Images in every form become one tensor, the same at fit and ever after, and the networks learn from it."""

import io
import json
import struct
import sys
import types
import zlib
from typing import Any

import numpy as np
import pandas as pd
import PIL
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

from dwac.encoders.image import ImageEncoder
from dwac.encoders.image_networks import Averaged, ResidualBlock
from dwac.errors import InputError, NonFiniteError, ShapeError
from dwac.estimator import DWACClassifier
from dwac.nn import WeightedAverage
from tests.named import refuses


def pixels(*shape, seed=0):
    """Whole numbers that use all of 0 … 255."""
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def only(encoder, X):
    (images,) = encoder.transform(X)
    assert images.is_contiguous()
    return images


# Every layout and type


@pytest.mark.parametrize(
    ("shape", "fitted", "move"),
    [
        ((5, 9, 8), (1, 9, 8), lambda x: x[:, None]),
        ((5, 9, 8, 1), (1, 9, 8), lambda x: x.transpose(0, 3, 1, 2)),
        ((5, 9, 8, 3), (3, 9, 8), lambda x: x.transpose(0, 3, 1, 2)),
        ((5, 9, 8, 4), (4, 9, 8), lambda x: x.transpose(0, 3, 1, 2)),
        ((5, 1, 9, 8), (1, 9, 8), lambda x: x),
        ((5, 3, 9, 8), (3, 9, 8), lambda x: x),
    ],
)
@pytest.mark.parametrize("form", ["uint8", "float64", "float16", "int64", "tensor", "bfloat16", "list", "tensors"])
def test_every_layout_and_type_gives_channels_first(shape, fitted, move, form):
    X = pixels(*shape)
    given = {
        "tensor": lambda: torch.as_tensor(X),
        "bfloat16": lambda: torch.as_tensor(X).bfloat16(),
        "list": lambda: list(X),
        "tensors": lambda: list(torch.as_tensor(X)),
    }.get(form, lambda: X.astype(form))()
    encoder = ImageEncoder().fit(given)
    images = only(encoder, given)
    assert tuple(images.shape[1:]) == encoder.seen.shape == fitted
    assert images.dtype == (torch.float32 if "float" in form else torch.uint8)
    np.testing.assert_array_equal(images.float(), move(X).astype(np.float32))


def test_ambiguous_channels_are_last_by_default():
    X = pixels(4, 3, 3, 3)
    assert torch.equal(only(ImageEncoder().fit(X), X), torch.as_tensor(X).movedim(-1, 1))
    assert torch.equal(only(ImageEncoder(channels="first").fit(X), X), torch.as_tensor(X))


def test_unusual_channel_counts_must_be_given():
    X = pixels(4, 8, 9, 2)
    with refuses(ShapeError, (4, 8, 9, 2), 'channels="first"'):
        ImageEncoder().fit(X)
    encoder = ImageEncoder(channels="last").fit(X)
    assert only(encoder, X).shape == (4, 2, 8, 9)
    assert Image.open(io.BytesIO(encoder.records(X)["image"][0])).mode == "L"


@pytest.mark.parametrize(
    "X",
    [pixels(6, 8, 8)[::-1], np.broadcast_to(pixels(8, 8), (3, 8, 8)), pixels(6, 8, 8).astype(">f4"), [[[0, 9]] * 3]],
)
def test_reversed_readonly_bigendian_and_nested_lists_are_read(X):
    np.testing.assert_array_equal(only(ImageEncoder().fit(X), X)[:, 0], np.asarray(X))


def test_booleans_and_large_whole_numbers_keep_their_values():
    masks = pixels(4, 8, 8) > 127
    assert only(ImageEncoder().fit(masks), masks).dtype == torch.uint8
    deep = pixels(4, 8, 8).astype(np.uint16) * 200
    encoder = ImageEncoder().fit(deep)
    np.testing.assert_array_equal(only(encoder, deep)[:, 0], deep.astype(np.float32))
    assert only(encoder, deep.astype(np.int64)).dtype == torch.float32
    assert only(ImageEncoder().fit(pixels(4, 8, 8)), deep // 200).dtype == torch.uint8


# Pictures


@pytest.fixture
def files(tmp_path):
    """Six grey images as PNG files, and their pixels."""
    X = pixels(6, 10, 8)
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    for path, image in zip(paths, X, strict=True):
        Image.fromarray(image).save(path)
    return paths, X


def test_paths_strings_series_bytes_and_pictures_read_alike(files):
    paths, X = files
    expected = torch.as_tensor(X)[:, None]
    forms = [paths, list(map(str, paths)), pd.Series(list(map(str, paths))), np.array(list(map(str, paths)))]
    forms += [[path.read_bytes() for path in paths], [Image.fromarray(image) for image in X], tuple(paths)]
    for form in forms:
        assert torch.equal(only(ImageEncoder().fit(form), form), expected)
    # A model of arrays reads pictures too, and the other way round: it is the pixels that count.
    assert torch.equal(only(ImageEncoder().fit(X), paths), expected)
    assert torch.equal(only(ImageEncoder().fit(paths), X), expected)


@pytest.mark.parametrize(
    ("modes", "channels"),
    [
        (["L", "1", "LA"], 1),
        (["RGB", "L", "P", "CMYK"], 3),
        (["RGBA", "LA"], 4),
        (["RGBA", "RGB"], 3),
    ],
)
def test_the_mode_is_decided_by_all_training_images(modes, channels):
    pictures = [Image.fromarray(pixels(8, 8, 3)).convert(mode) for mode in modes]
    encoder = ImageEncoder().fit(pictures)
    assert encoder.seen.shape == (channels, 8, 8)
    others = [Image.fromarray(pixels(8, 8, 3)).convert(mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK")]
    assert only(encoder, others).shape == (7, channels, 8, 8)


def test_palettes_with_transparency_sixteen_bits_and_orientation_are_understood(tmp_path):
    palette = Image.fromarray(pixels(8, 8, 3)).convert("P")
    palette.save(tmp_path / "p.png", transparency=b"\x00\x80")
    assert ImageEncoder().fit([tmp_path / "p.png"]).seen.shape == (4, 8, 8)
    assert ImageEncoder().fit([tmp_path / "p.png", Image.new("RGB", (8, 8))]).seen.shape == (3, 8, 8)
    deep, path = pixels(8, 8).astype(np.uint16) * 256, tmp_path / "deep.png"
    Image.fromarray(deep).save(path)
    np.testing.assert_array_equal(only(ImageEncoder().fit([path]), [path])[0, 0], deep >> 8)
    lying, exif = Image.fromarray(pixels(8, 12)), Image.Exif()
    exif[0x0112] = 6  # turned by 90°
    lying.save(tmp_path / "lying.png", exif=exif)
    assert ImageEncoder().fit([tmp_path / "lying.png"]).seen.shape == (1, 12, 8)


def test_pictures_are_resized_to_the_first_or_to_the_setting(files):
    paths, _ = files
    pictures = [*paths, Image.new("L", (30, 20))]
    assert only(ImageEncoder().fit(pictures), pictures).shape == (7, 1, 10, 8)
    encoder = ImageEncoder(size=(16, 12)).fit(pictures)
    assert only(encoder, pictures).shape == (7, 1, 16, 12)
    assert ImageEncoder(size=9).fit(paths).seen.shape == (1, 9, 9)


# What is refused, and how


def test_missing_and_broken_files_are_named_before_anything_is_done(files, tmp_path):
    paths, _ = files
    with refuses(InputError, 6, "gone.png"):
        ImageEncoder().fit([*paths, tmp_path / "gone.png"])
    text, cut = tmp_path / "text.png", tmp_path / "cut.png"
    text.write_text("no image")
    cut.write_bytes(paths[0].read_bytes()[:-40])
    encoder = ImageEncoder().fit(paths)
    for bad in (text, cut):
        for read in (ImageEncoder().fit, encoder.transform):
            with refuses(InputError, 6, bad.name):
                read([*paths, bad])
    with refuses(InputError, 0, "bytes"):
        encoder.transform([b"no image"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_a_pixel_that_is_not_finite_names_its_row(value):
    X = np.zeros((5, 8, 8))
    encoder = ImageEncoder().fit(X)
    X[3, 2, 1] = value
    for read in (ImageEncoder().fit, encoder.transform):
        with refuses(NonFiniteError, 3, "NaN"):
            read(X)


@pytest.mark.parametrize(
    ("X", "error", "facts"),
    [
        (pixels(8, 8), ShapeError, [(8, 8), "X[None]"]),
        (np.zeros(5), ShapeError, ["(5,)"]),
        (np.zeros((0, 8, 8)), InputError, ["one image"]),
        (np.zeros((5, 0, 8)), InputError, ["one pixel"]),
        ([], InputError, ["one image"]),
        ([pixels(8, 8), pixels(8, 8), pixels(8, 9)], ShapeError, [(8, 8), "row 2", (8, 9), "resize"]),
        (["a.png", pixels(8, 8)], InputError, ["a.png"]),
        ([b"", pixels(8, 8)], InputError, ["row 1", "ndarray"]),
        ("a.png", InputError, ["str"]),
        (pd.DataFrame({"path": ["a.png"]}), InputError, ["DataFrame", "X['path']"]),
        (7, InputError, ["int"]),
        ([[[1, 2], [3]]], InputError, ["row 0"]),
        (np.zeros((2, 8, 8), dtype=complex), InputError, ["complex128"]),
        ([Image.new("F", (8, 8))], InputError, ["mode F"]),
        (pixels(5, 1, 8, 4), ShapeError, ["2×2", "1×8", "4 channels", 'channels="first"']),
    ],
)
def test_what_cannot_be_images_is_refused_with_advice(X, error, facts):
    with refuses(error, *facts):
        ImageEncoder().fit(X)


def test_other_shapes_and_numbers_than_fitted_are_refused():
    grey, colour = ImageEncoder().fit(pixels(4, 8, 8)), ImageEncoder().fit(pixels(4, 8, 9, 3))
    real = ImageEncoder().fit(pixels(4, 8, 8) / 255)
    with refuses(ShapeError, "(n, 8, 8)", "uint8", (4, 9, 9)):
        grey.transform(pixels(4, 9, 9))
    with refuses(ShapeError, "(n, 8, 9, 3)", (4, 3, 8, 9)):
        colour.transform(pixels(4, 3, 8, 9))
    with refuses(InputError, "uint8", "float64"):
        grey.transform(pixels(4, 8, 8) / 255)
    with refuses(InputError, "float", "uint8"):
        real.transform(pixels(4, 8, 8))
    with refuses(InputError, "pictures"):
        real.transform([Image.new("L", (8, 8))])
    with refuses(InputError, 2):
        grey.transform(np.arange(3)[:, None, None] * np.full((8, 8), 200))
    with refuses(InputError):
        ImageEncoder().transform(pixels(4, 8, 8))
    with refuses(InputError, "resize"):
        ImageEncoder(size=12).fit(pixels(4, 8, 8))


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"network": "resnet19"}, ["resnet19", "default", "paper", "resnet18", "timm:NAME"]),
        ({"augment": "yes"}, ["augment", "yes", True, False, "auto"]),
        ({"flip": 1}, ["flip", 1, True, False]),
        ({"cutout": 1.5}, ["cutout", 1.5]),
        ({"shift": -1}, ["shift", -1]),
        ({"size": (1, 2, 3)}, ["size", (1, 2, 3)]),
        ({"channels": "middle"}, ["channels", "middle"]),
        ({"width": 0}, ["width", 0]),
    ],
)
def test_settings_are_checked(settings, facts):
    with refuses(InputError, *facts):
        ImageEncoder(**settings)


def test_absent_libraries_are_named_with_the_command_that_installs_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with refuses(InputError, "timm:resnet10t", "pip install timm"):
        ImageEncoder("timm:resnet10t").fit(pixels(4, 8, 8))
    for module in ("PIL", "PIL.Image", "PIL.ImageOps"):
        monkeypatch.setitem(sys.modules, module, None)
    with refuses(InputError, "pip install 'dwac[image]'"):
        ImageEncoder().fit([b"some image"])
    encoder = ImageEncoder().fit(pixels(4, 8, 8))  # arrays need no Pillow, nor do records
    assert encoder.records(pixels(4, 8, 8))["image"][0].startswith(b"\x89PNG")


# Config


def test_an_unfitted_config_comes_back_and_a_foreign_one_is_refused():
    encoder = ImageEncoder(
        "paper", augment=True, shift=3, flip=True, cutout=0, size=(12, 10), channels="last", width=16
    )
    again = ImageEncoder.from_config(json.loads(json.dumps(encoder.config())))
    assert (again.settings, repr(again)) == (encoder.settings, repr(encoder))
    configs: list[dict[str, object]] = [{}, {"seen": {}}, {"columns": []}]
    for config in configs:
        with refuses(InputError, "config"):
            ImageEncoder.from_config(config)


def test_a_restored_timm_encoder_downloads_nothing(monkeypatch):
    asked = []

    def create_model(name, **options):
        asked.append((name, options))
        return nn.Sequential(nn.Conv2d(options["in_chans"], 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=create_model))
    X = pixels(4, 8, 8, 3)
    encoder = ImageEncoder("timm:tiny", pretrained=True).fit(X)
    assert encoder.network()(only(encoder, X)).shape == (4, 5)
    ImageEncoder.from_config(encoder.config()).network()
    ImageEncoder.from_config(encoder.config()).fit(X).network()
    assert [options["pretrained"] for _, options in asked] == [True, False, True]
    assert asked[0] == ("tiny", {"pretrained": True, "num_classes": 0, "in_chans": 3})
    small = ImageEncoder("timm:tiny").fit(pixels(4, 2, 2))
    with refuses(InputError, "tiny", "2×2"):
        small.network()


# Augmentation


def varied(encoder, images, seed=0):
    return encoder.augment((images,), torch.Generator().manual_seed(seed))[0]


def test_few_images_of_32_pixels_pool_early_and_older_configs_keep_their_network():
    few, small = (ImageEncoder().fit(pixels(4, side, side)) for side in (32, 31))
    assert (few.seen.early_pools, small.seen.early_pools) == (True, False)
    config = few.config()
    del config["seen"]["early_pools"]
    late, early = (list(new.network().children())[1] for new in (ImageEncoder.from_config(config), few))
    assert [sum(isinstance(part, ResidualBlock) for part in net.children()) for net in (late, early)] == [4, 3]
    assert few.network()(only(few, pixels(2, 32, 32))).shape == (2, 128)


@pytest.mark.parametrize("X", [pixels(32, 12, 10), pixels(32, 12, 10, 3) / 255])
@given(shift=st.integers(0, 20), flip=st.booleans(), cutout=st.sampled_from([0.0, 0.3, 0.9]), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_augmentation_keeps_shape_type_and_range_and_repeats_by_seed(X, shift, flip, cutout, seed):
    encoder = ImageEncoder(shift=shift, flip=flip, cutout=cutout).fit(X)
    images = only(encoder, X)
    before, after = images.clone(), varied(encoder, images, seed)
    assert torch.equal(images, before)
    assert (after.shape, after.dtype) == (images.shape, images.dtype)
    assert images.min() <= after.min() <= after.max() <= images.max()
    assert torch.equal(after, varied(encoder, images, seed))
    if shift or flip or cutout:
        assert not torch.equal(after, varied(encoder, images, seed + 1))


def test_a_move_shifts_the_image_and_reflects_at_the_border():
    X = np.arange(256, dtype=np.uint8).reshape(1, 16, 16).repeat(400, axis=0)
    encoder = ImageEncoder(shift=2, cutout=0).fit(X)
    padded = np.pad(X[0], 2, mode="reflect")
    windows = {padded[i : i + 16, j : j + 16].tobytes() for i in range(5) for j in range(5)}
    assert {image.numpy().tobytes() for image in varied(encoder, only(encoder, X))[:, 0]} == windows


def test_flipping_mirrors_about_half_and_only_if_asked():
    X = np.arange(64, dtype=np.uint8).reshape(1, 8, 8).repeat(400, axis=0)
    for flip in (False, True):
        encoder = ImageEncoder(shift=0, flip=flip).fit(X)
        after = varied(encoder, only(encoder, X))[:, 0]
        mirrored = (after == torch.as_tensor(X).flip(2)).all(dim=(1, 2))
        assert (mirrored | (after == torch.as_tensor(X)).all(dim=(1, 2))).all()
        assert 150 * flip <= mirrored.sum() <= 250 * flip


def test_cutout_blanks_one_square_with_the_mean():
    X = np.stack([np.zeros((20, 10)), np.full((20, 10), 255)] * 50).astype(np.uint8)
    encoder = ImageEncoder(shift=0, cutout=0.4).fit(X)
    holes = varied(encoder, only(encoder, X))[:, 0] == 128
    assert (holes.sum(dim=(1, 2)) == 16).all()
    assert (holes.any(dim=1).sum(dim=1) == 4).all()
    assert holes.any(dim=0).any(dim=0).all()
    assert holes.any(dim=0).any(dim=1).all()


def test_the_papers_network_is_not_augmented_unless_asked():
    X = pixels(8, 28, 28)
    for encoder, same in ((ImageEncoder("paper").fit(X), True), (ImageEncoder("paper", augment=True).fit(X), False)):
        assert torch.equal(varied(encoder, only(encoder, X)), only(encoder, X)) == same
    encoder = ImageEncoder(augment=False).fit(X)
    assert torch.equal(varied(encoder, only(encoder, X)), only(encoder, X))


# Networks


SHAPES = [(8, 8), (28, 28), (32, 32, 3), (64, 64), (2, 9), (96, 40, 3)]


@pytest.mark.parametrize(
    ("network", "shape"),
    [(network, shape) for network in ("default", "paper") for shape in SHAPES]
    + [("resnet18", shape) for shape in ((2, 9), (28, 28), (80, 66, 3))],  # beyond 64 pixels it begins otherwise
)
def test_networks_take_every_size_forward_and_backward(network, shape):
    X = pixels(1, *shape)  # one image is a batch too, whatever batch norm says
    if network == "paper" and min(shape[:2]) < 6:
        with refuses(ShapeError, "6×6", "2×9"):
            ImageEncoder(network).fit(X)
        return
    encoder = ImageEncoder(network).fit(X)
    module = encoder.network()
    features = module(only(encoder, X))
    assert features.ndim == 2
    features.square().mean().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in module.parameters())


def test_default_takes_photographs():
    encoder = ImageEncoder().fit(pixels(2, 224, 224, 3))
    with torch.no_grad():
        assert encoder.network()(only(encoder, pixels(2, 224, 224, 3))).shape == (2, 256)


def test_the_papers_network_is_the_papers():
    module = ImageEncoder("paper").fit(pixels(2, 28, 28)).network()
    shapes = [tuple(p.shape) for p in module.parameters() if p.ndim > 1]
    assert shapes == [(32, 1, 3, 3), (64, 32, 3, 3), (128, 9216)]
    assert [m.p for m in module.modules() if isinstance(m, nn.Dropout)] == [0.25, 0.5]


@pytest.mark.parametrize("X", [pixels(50, 8, 8, 3), pixels(50, 8, 8, 3) * 1e6 - 3.0, np.full((50, 8, 8, 3), 7.0)])
def test_the_network_standardises_each_channel_from_training_statistics(X):
    encoder = ImageEncoder().fit(X)
    x = next(encoder.network().children())(only(encoder, X)).double()
    torch.testing.assert_close(x.mean(dim=(0, 2, 3)), torch.zeros(3, dtype=torch.float64), atol=1e-5, rtol=0)
    deviation = 0.0 if np.ptp(X) == 0 else 1.0
    torch.testing.assert_close(x.std(dim=(0, 2, 3), correction=0), torch.full((3,), deviation, dtype=torch.float64))


def test_width_and_recipe_follow_what_fit_saw():
    few, many = ImageEncoder().fit(pixels(200, 16, 16)), ImageEncoder().fit(pixels(5000, 16, 16))
    assert (few.seen.width, many.seen.width) == (32, 64)
    assert few.recipe.batch_size < many.recipe.batch_size
    paper = ImageEncoder("paper").recipe
    assert (paper.batch_size, paper.learning_rate, paper.patience, paper.embedding_size) == (128, 1e-3, 5, None)
    assert (paper.ensemble_size, paper.auxiliary_weight) == (1, 0.0)  # the paper has neither


@pytest.mark.parametrize("network", ["default", "paper", "resnet18"])
def test_with_flip_an_image_and_its_mirror_image_are_one_in_evaluation(network):
    torch.manual_seed(0)
    X = pixels(6, 12, 10, 3)
    encoder = ImageEncoder(network, flip=True, augment=True).fit(X)
    x, mirrored = only(encoder, X), only(encoder, X[:, :, ::-1])
    model: Any = WeightedAverage(encoder.network(), 3).eval()
    with torch.no_grad():
        model.embed(x)  # gives the last layer its size
        assert torch.equal(model.embed(x), model.embed(mirrored))
        standardise, both = model.backbone
        one, other = both.network(standardise(x)), both.network(standardise(mirrored))
        torch.testing.assert_close(model.backbone(x), (one + other) / 2)
    assert not torch.allclose(one, other)
    plain = ImageEncoder(network).fit(X).network().eval()
    assert not torch.allclose(plain(x), plain(mirrored))


@pytest.mark.parametrize("settings", [{"network": "paper"}, {"augment": False}])
def test_images_are_read_both_ways_only_where_training_mirrors_them(settings):
    network: Any = ImageEncoder(flip=True, **settings).fit(pixels(6, 12, 10, 3)).network()
    assert not any(isinstance(module, Averaged) for module in network.modules())


def test_in_training_a_mirrored_network_is_the_plain_one():
    X = pixels(6, 12, 10, 3)
    both, plain = (ImageEncoder(width=8, flip=flip).fit(X).network().train() for flip in (True, False))
    plain.load_state_dict({name.replace("1.network.", "1."): value for name, value in both.state_dict().items()})
    x = torch.as_tensor(X).movedim(-1, 1)
    assert torch.equal(both(x), plain(x))
    for one, other in zip(both.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(one, other)  # batch norm has seen each image once
    both(x).sum().backward()
    plain(x).sum().backward()
    grads: list[Any] = [[parameter.grad for parameter in network.parameters()] for network in (both, plain)]
    assert all(torch.equal(one, other) for one, other in zip(*grads, strict=True))


def test_a_restored_encoder_reads_both_ways_too():
    X = pixels(6, 12, 10)
    encoder = ImageEncoder(flip=True).fit(X)
    network = encoder.network().eval()
    again = ImageEncoder.from_config(json.loads(json.dumps(encoder.config())))
    other = again.network().eval()
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(only(again, X)), network(only(encoder, X[:, :, ::-1])))


def test_mirroring_is_the_mean_whatever_the_network():
    class Left(nn.Module):
        def forward(self, images):
            return images[:, :, 0, 0]

    images = torch.arange(2 * 3 * 2 * 4.0).reshape(2, 3, 2, 4)
    mirrored = Averaged(Left(), flip=True, moved=False)
    assert torch.equal(mirrored.train()(images), images[:, :, 0, 0])
    assert torch.equal(mirrored.eval()(images), (images[:, :, 0, 0] + images[:, :, 0, 3]) / 2)
    moved = Averaged(Left(), flip=False, moved=True)
    assert torch.equal(moved.train()(images), images[:, :, 0, 0])
    assert torch.equal(moved.eval()(images), (images[:, :, 0, 0] + images[:, :, 1, 1]) / 2)  # both ends are reflected
    both = Averaged(Left(), flip=True, moved=True).eval()
    corners = images[:, :, 0, 0] + images[:, :, 0, 3] + images[:, :, 1, 1] + images[:, :, 1, 2]
    assert torch.equal(both(images), corners / 4)
    both.quick = True
    assert torch.equal(both(images), mirrored(images))


def test_between_epochs_few_views_are_read_and_after_training_all(monkeypatch):
    seen, both_ways = [], Averaged.both_ways

    def counted(self, network, images):
        seen.append(self.quick)
        return both_ways(self, network, images)

    monkeypatch.setattr(Averaged, "both_ways", counted)
    X, y = pixels(40, 8, 8), np.arange(40) % 2
    encoder = ImageEncoder(average_moved=True, width=4)
    clf = DWACClassifier(encoder, epochs=1, random_state=0, verbose=False, device="cpu").fit(X, y)
    assert set(seen) == {True, False}
    del seen[:]
    clf.predict(X[:1])
    assert seen == [False] * 3
    again = ImageEncoder.from_config(json.loads(json.dumps(clf.encoder_.config())))
    assert repr(again) == repr(clf.encoder_)


# Records


def test_records_are_png_files_of_the_pixels(files):
    paths, X = files
    read = [np.asarray(Image.open(io.BytesIO(png))) for png in ImageEncoder().fit(X).records(X)["image"]]
    np.testing.assert_array_equal(read, X)
    records = ImageEncoder().fit(paths).records(paths)
    assert list(records.columns) == ["image", "path"]
    assert records["path"].tolist() == list(map(str, paths))
    for channels, mode in ((3, "RGB"), (4, "RGBA")):
        X = pixels(3, 9, 8, channels)
        frame = ImageEncoder().fit(X).records(X)
        image = Image.open(io.BytesIO(frame["image"][1]))
        assert (image.mode, list(frame.columns)) == (mode, ["image"])
        np.testing.assert_array_equal(image, X[1])


@pytest.mark.parametrize("X", [pixels(3, 8, 8) / 51 - 2, pixels(3, 8, 8) // 16, np.zeros((3, 8, 8))])
def test_records_of_other_ranges_fill_the_range_seen_in_fit(X):
    encoder = ImageEncoder().fit(X)
    shown = np.asarray([np.asarray(Image.open(io.BytesIO(png))) for png in encoder.records(X)["image"]])
    expected = (X - X.min()) / (np.ptp(X) or 1) * 255
    assert np.abs(shown - expected).max() <= 0.5 + 1e-4
    beyond = encoder.records(X + X.dtype.type(3))["image"]  # beyond the range is cut off, not wrapped
    for png, usual in zip(beyond, shown, strict=True):
        assert (np.asarray(Image.open(io.BytesIO(png))) >= usual).all()


# Learning


@pytest.mark.slow  # tests/estimator/test_classifier.py::test_images_of_digits asks for less
def test_the_default_network_learns_digits_in_a_few_epochs():
    order = np.random.default_rng(0).permutation(1797)  # as given, the last writers differ from the first
    X, y = load_digits(return_X_y=True)
    X, y = X[order].reshape(-1, 8, 8), torch.as_tensor(y[order])
    torch.manual_seed(0)
    encoder = ImageEncoder().fit(X[:1200])
    (x,) = encoder.transform(X)
    model = WeightedAverage(encoder.network(), 10)
    model.eval().embed(x[:2])
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, 4 * 19 + 1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        for rows in torch.randperm(1200, generator=generator).split(64):
            loss = model.loss(encoder.augment((x[rows],), generator), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval().remember([(x[:1200], y[:1200])])
    with torch.no_grad():
        assert (model(x[1200:]).argmax(dim=1) == y[1200:]).float().mean() > 0.95


# Pictures from anywhere


def file(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, form, **options)
    return data.getvalue()


@pytest.fixture
def of_pictures() -> ImageEncoder:
    return ImageEncoder().fit([file(Image.fromarray(pixels(8, 8, 3, seed=seed))) for seed in range(4)])


def claiming(width: int, height: int) -> bytes:
    """A PNG file that says it has so many pixels, and has none."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("size", "facts"),
    [((9000, 6000), ["9000×6000"]), ((12_000, 12_000), ["12000×12000"]), ((20_000, 10_000), [])],
)
def test_a_small_file_of_many_pixels_is_refused_undecoded(of_pictures, size, facts, tmp_path, monkeypatch) -> None:
    (tmp_path / "bomb.png").write_bytes(claiming(*size))
    monkeypatch.setattr(Image.Image, "convert", None)
    for X in ([claiming(*size)], [tmp_path / "bomb.png"]):
        for read in (of_pictures.transform, of_pictures.records, ImageEncoder().fit):
            with refuses(InputError, "row 0", "50,000,000", *facts):
                read(X)


def test_a_warning_of_pillow_that_is_an_error_is_the_same_refusal(of_pictures) -> None:
    with refuses(InputError, 0, "50,000,000"):
        of_pictures.transform([claiming(12_000, 12_000)])


def test_pictures_that_are_no_single_picture_are_refused(of_pictures) -> None:
    one, two = Image.new("L", (8, 8)), [Image.new("L", (8, 8), 9)]
    whole = file(Image.fromarray(pixels(64, 64, 3)))
    for data, facts in (
        (file(one, "GIF", save_all=True, append_images=two), ["frames"]),
        (file(one, "TIFF", save_all=True, append_images=two), ["frames"]),
        (file(one, "PNG", save_all=True, append_images=two), ["frames"]),
        (whole[: len(whole) // 2], ["truncated", "repair", "drop"]),
        (file(Image.new("F", (8, 8)), "TIFF"), ["mode F", "arrays"]),
        (file(Image.new("I", (8, 8)), "TIFF"), ["mode I", "arrays"]),
        (b"", ["read"]),
    ):
        for read in (of_pictures.transform, ImageEncoder().fit):
            with refuses(InputError, "row 0", "bytes", *facts):
                read([data])
    # A camera's second image is its preview.
    colour = Image.new("RGB", (8, 8))
    assert only(of_pictures, [file(colour, "MPO", save_all=True, append_images=[colour])]).shape == (1, 3, 8, 8)
    for mode in ("1", "P", "LA", "CMYK", "YCbCr", "I;16"):
        picture = Image.new(mode, (8, 8))
        forms: list[Any] = [picture, file(picture, "TIFF", compression="tiff_adobe_deflate")]
        if mode != "YCbCr" or int(PIL.__version__.partition(".")[0]) >= 13:  # 12.1 cannot read what it wrote
            forms.append(file(picture, "TIFF"))
        for form in forms:
            assert only(of_pictures, [form]).shape == (1, 3, 8, 8)


def test_images_too_large_to_learn_from_are_refused_before_all_are_read() -> None:
    large = np.broadcast_to(np.uint8(1), (2, 6000, 6000, 3))
    with refuses(InputError, "6000 × 6000 × 3", "size="):
        ImageEncoder().fit(large)
    with refuses(InputError, "size="):
        ImageEncoder().fit([file(Image.new("RGB", (6000, 6000)))] * 2)
