"""A tokeniser from anywhere is looked at, built and tried when the model is loaded; a panic is an error like others."""

import json
from pathlib import Path
from typing import Any

import pytest

import dwac
from dwac import DWACClassifier, storage
from dwac.encoders import HuggingFaceEncoder
from dwac.encoders.hf_tokenizer import restore_tokenizer, tokenise_texts
from dwac.errors import InputError, StorageError
from tests.encoders.helpers import tiny_bert
from tests.named import refuses

pytest.importorskip("tokenizers")
TEXTS = ["sort a list", "parse json", "a python list", "sort json"] * 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bert = tiny_bert(tmp_path_factory.mktemp("bert"))
    clf = DWACClassifier(f"huggingface:{bert}", epochs=1, random_state=0, device="cpu", verbose=False)
    return clf.fit(TEXTS, ["yes", "no"] * 20).save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def described(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(storage.read_model(folder).config["encoder"]["config"]["tokenizer"])
    return content


def replace(text: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


def split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def nested(levels: int) -> dict[str, Any]:
    step: dict[str, Any] = {"type": "Lowercase"}
    for _ in range(levels):
        step = {"type": "Sequence", "normalizers": [step]}
    return step


HOSTILE: list[tuple[dict[str, Any], list[object]]] = [
    ({"padding": {"strategy": {"Fixed": 10**9}}}, ["8192"]),
    ({"padding": {"strategy": {"Fixed": 10**9}}, "truncation": {"max_length": 10**9}}, ["cut", "pad"]),
    ({"padding": {"strategy": "BatchLongest"}}, ["cut", "pad"]),
    ({"padding": {"pad_to_multiple_of": 10**9}}, ["cut", "pad"]),
    ({"padding": None}, ["cut", "pad"]),
    ({"truncation": {"max_length": 0}}, ["cut", "pad"]),
    ({"truncation": {"stride": 50}}, ["cut", "pad"]),
    ({"truncation": None}, ["cut", "pad"]),
    ({"padding": {"pad_id": 10**6}}, [10, 5, 1000000]),
    ({"model": {"vocab": {"[UNK]": 10**6}}}, [1000000]),
    ({"model": {"max_input_chars_per_word": 2**60}}, ["max_input_chars_per_word"]),
    ({"model": {"continuing_subword_prefix": "#" * 10**5}}, ["continuing_subword_prefix", "100,000"]),
    ({"model": {"type": "Unigram", "unk_id": 7, "vocab": [["a", 0.0]]}}, ["used"]),
    ({"normalizer": {"type": "Sequence", "normalizers": [replace("a", "aa")] * 30}}, ["1.07374e+09"]),
    ({"normalizer": {"type": "Prepend", "prepend": "a" * 1000}}, [1001]),
    ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}] * 99}}, ["101 steps"]),
    ({"normalizer": replace("a" * 5000, "")}, ["5,000"]),
    ({"normalizer": nested(200)}, ["100 levels"]),
    (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}},
        ["precompiled_charsmap"],
    ),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": 7}}, ["precompiled_charsmap"]),
    ({"normalizer": {"type": "Evil"}}, ["used"]),
    ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, []),
    ({"pre_tokenizer": split("(a+)+$")}, ["PanicException", "retry-limit"]),
    (
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "x", "type_id": 0}}] * 1000,
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"x": {"id": "x", "ids": [1] * 1000, "tokens": ["x"] * 1000}},
            }
        },
        [5, "special tokens"],
    ),
]


def changed(described: dict[str, Any], changes: dict[str, Any]) -> str:
    """The JSON with other parts; those of padding, truncation and model beside what was there."""
    for name, part in changes.items():
        beside = name in ("padding", "truncation", "model") and part is not None and part.get("type") is None
        described[name] = {**described[name], **part} if beside else part
    return json.dumps(described)


@pytest.mark.parametrize(("changes", "facts"), HOSTILE)
def test_a_hostile_tokeniser_is_refused(
    changes: dict[str, Any], facts: list[object], described: dict[str, Any]
) -> None:
    with refuses(InputError, *facts):
        restore_tokenizer(changed(described, changes), 10)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", None, 7, "[" * 10**5])
def test_what_is_no_tokeniser_is_refused(text: Any) -> None:
    with refuses(InputError, "tokeniser"):
        restore_tokenizer(text, 10)


@pytest.mark.parametrize("changes", [HOSTILE[0][0], {"pre_tokenizer": split("(a+)+$")}])
def test_a_hostile_tokeniser_is_refused_when_the_folder_is_loaded(
    changes: dict[str, Any], described: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    stored = storage.read_model(folder)
    stored.config["encoder"]["config"]["tokenizer"] = changed(described, changes)
    hostile = storage.write_model(tmp_path / "model", *stored)
    with refuses(StorageError, hostile, "tokeniser"):
        dwac.load(hostile, device="cpu")


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"num_hidden_layers": 10**9}, ["num_hidden_layers", 256]),
        ({"chunk_size_feed_forward": 10**12}, ["chunk_size_feed_forward"]),
        ({"vocab_size": None}, ["vocab_size"]),
        ({"type_vocab_size": 0}, []),
    ],
)
def test_a_hostile_architecture_is_refused_when_the_folder_is_loaded(
    change: dict[str, Any], facts: list[object], folder: Path, tmp_path: Path
) -> None:
    stored = storage.read_model(folder)
    stored.config["encoder"]["config"]["model"].update(change)
    hostile = storage.write_model(tmp_path / "model", *stored)
    with refuses(StorageError, hostile, *facts):
        dwac.load(hostile, device="cpu")


def test_a_panic_at_predict_names_the_row(described: dict[str, Any]) -> None:
    tokenizer = restore_tokenizer(
        changed(described, {"pre_tokenizer": split("(b+)+$")}), 10
    )  # not met by the texts it is tried on
    hard = "b" * 60 + "!"
    with refuses(InputError, 1, "retry-limit"):
        tokenise_texts(tokenizer, ["sort", hard, "list"], 10)
    assert tokenise_texts(tokenizer, ["sort", "list"], 10)[0].shape == (2, tokenizer.padding["length"])


def test_ordinary_tokenisers_are_built_as_they_are(described: dict[str, Any]) -> None:
    steps = [replace("``", '"'), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]
    described["normalizer"] = {"type": "Sequence", "normalizers": steps}
    tokenizer = restore_tokenizer(json.dumps(described), 10)
    assert tokenise_texts(tokenizer, ["Sórt a LIST"], 10)[0].tolist()[0][:5] == [2, 9, 4, 6, 3]


def test_an_unfitted_encoder_has_no_tokeniser_to_check() -> None:
    with refuses(dwac.errors.DwacError, "fit"):
        HuggingFaceEncoder("any").check()
