"""Encoders of every kind with data for each, and what compares what they make."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from dwac.encoders import Encoder, HuggingFaceEncoder, ImageEncoder, ModuleEncoder, Recipe, TabularEncoder, TextEncoder
from dwac.estimator.preparation import take

N = 24


@dataclass
class Case:
    """An encoder, training data for it, and other data of the same kind."""

    new: Callable[[], Encoder]
    X: Any
    other: Any


def table(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    gap = np.arange(N) % 5 == seed
    days = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 9999, N), unit="h"))
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, N),
            "income": np.where(gap, np.nan, rng.lognormal(10, 1, N)),
            "children": pd.Series(rng.integers(0, 5, N)).astype("Int64").mask(gap),
            "member": rng.random(N) > 0.5,
            "asked": pd.Series(rng.random(N) > 0.5).astype("boolean").mask(gap),
            "job": pd.Series(rng.choice(["nurse", "clerk"], N), dtype=object).mask(gap, None),
            "grade": pd.Categorical(rng.choice(["low", "high"], N)),
            "seen": days.where(~gap),
            "zone": days.dt.tz_localize("UTC"),
            "wait": pd.to_timedelta(rng.integers(1, 999, N), unit="s"),
            "constant": 1.0,
            "nothing": np.nan,
            "7": rng.normal(size=N),
        }
    )


def pixels(*shape: int, scale: float = 0, seed: int = 0) -> Any:
    """Whole numbers 0 … 255 , or these times a scale, that nobody may write to."""
    array: Any = np.random.default_rng(seed).integers(0, 256, (N, *shape)).astype(np.uint8)
    array = array * scale if scale else array
    array.setflags(write=False)
    return array


def pictures(folder: Path, seed: int) -> list[Path]:
    paths = [folder / f"{seed}-{i}.png" for i in range(N)]
    for path, image in zip(paths, pixels(10, 8 + seed, 3, seed=seed), strict=True):
        Image.fromarray(image).save(path)
    return paths


TEXTS = [
    "How do I sort a list in C++?",
    "Parsing JSON with a Python library",
    "Sort a list of strings in C# (.NET 3.5)",
    "how to parse a JSON file, in python",
] * (N // 4)
OTHER_TEXTS = ["quite other words", "of another kind altogether"] * 5


def vectors(folder: Path) -> Path:
    (folder / "vectors.txt").write_text("list 1 2 3\nelephant 4 5 6\npython 7 8 9e-1\nother 1 0 1\n")
    return folder / "vectors.txt"


def tiny_bert(folder: Path) -> Path:
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    words = {word: i for i, word in enumerate([*special.values(), "a", "json", "list", "parse", "python", "sort"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=14, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def of_bert(folder: Path) -> Case:
    bert = tiny_bert(folder)
    return Case(lambda: HuggingFaceEncoder(bert, trained_layers="all"), TEXTS, OTHER_TEXTS)


def of_module(module: nn.Module, X: Any, other: Any) -> Case:
    return Case(lambda: ModuleEncoder(module, recipe=Recipe(batch_size=8, embedding_size=5)), X, other)


FLAT = nn.Sequential(nn.Flatten(), nn.Linear(80, 6), nn.ReLU())
CASES: dict[str, Callable[[Path], Case]] = {
    "tabular": lambda _: Case(TabularEncoder, table(0), table(1)[["job", "age"]]),
    "tabular:paper": lambda _: Case(lambda: TabularEncoder("paper"), table(0), table(1)[["job", "age"]]),
    "image": lambda _: Case(ImageEncoder, pixels(10, 8), pixels(8, 9, 3, scale=1 / 255)),
    "image:paper": lambda _: Case(lambda: ImageEncoder("paper"), pixels(10, 8, 3), pixels(8, 9)),
    "image:resnet18": lambda _: Case(lambda: ImageEncoder("resnet18"), pixels(3, 10, 8, scale=1 / 255), pixels(8, 9)),
    "image:files": lambda folder: Case(ImageEncoder, pictures(folder, 0), pictures(folder, 1)),
    "text": lambda _: Case(TextEncoder, TEXTS, OTHER_TEXTS),
    "text:vectors": lambda folder: Case(lambda: TextEncoder(vectors=vectors(folder)), TEXTS, OTHER_TEXTS),
    "text:paper": lambda _: Case(lambda: TextEncoder("paper"), pd.Series(TEXTS), pd.Series(OTHER_TEXTS)),
    "text:paper:vectors": lambda folder: Case(
        lambda: TextEncoder("paper", vectors=vectors(folder)), np.array(TEXTS), np.array(OTHER_TEXTS)
    ),
    "huggingface": of_bert,
    "module": lambda _: of_module(FLAT, pixels(10, 8, scale=1 / 255), torch.ones(5, 80)),
    "module:two": lambda _: of_module(
        nn.Bilinear(4, 3, 6), (torch.randn(N, 4), torch.randn(N, 3)), (torch.ones(5, 2), torch.ones(5, 7))
    ),
}


def rows(X: Any, *numbers: int) -> Any:
    return take(X, np.array(numbers, dtype=np.int64))


def same(first: Any, second: Any) -> bool:
    """Whether two X, or two tuples of tensors, hold the very same values of the same types."""
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, pd.DataFrame | pd.Series):
        return first.equals(second)
    return type(first) is type(second) and np.array_equal(first, second)


def restored(encoder: Encoder) -> Encoder:
    again = type(encoder).from_config(json.loads(json.dumps(encoder.config(), allow_nan=False)))
    if isinstance(again, ModuleEncoder) and isinstance(encoder, ModuleEncoder):
        again.module = encoder.module
    return again
