"""Texts: what is read and refused, the tokeniser, stable hashes, both networks, word vectors, Hugging Face models."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dwac
from dwac import DWACClassifier
from dwac.encoders import hf_tokenizer
from dwac.encoders.huggingface import HuggingFaceEncoder, PooledModel
from dwac.encoders.text import TextEncoder, character_hashes, pair_hashes, tokenise, word_hash
from dwac.encoders.text_networks import AttentionCNN, SubwordNetwork, read_vectors
from dwac.errors import DwacError, InputError, NonFiniteError, ShapeError
from dwac.nn import Ensemble, WeightedAverage
from dwac.training.run import groups_of
from tests.named import refuses

TEXTS = [
    "How do I sort a list in C++?",
    "Sort a list of strings in C# (.NET 3.5)",
    "Parsing JSON with a Python library",
    "How to parse a JSON file in Python",
    "a list",
] * 2
NETWORKS = ["default", "paper"]


@pytest.fixture(params=NETWORKS)
def encoder(request: pytest.FixtureRequest) -> TextEncoder:
    return TextEncoder(request.param).fit(TEXTS)


def same(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def restored(encoder: Any) -> Any:
    return type(encoder).from_config(json.loads(json.dumps(encoder.config(), allow_nan=False)))


# What is read and what is refused


@pytest.mark.parametrize(
    "X",
    [
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        np.array(TEXTS)[:, None],
        pd.Series(TEXTS, index=range(5, 15)),
        pd.Series(TEXTS, dtype="string"),
        pd.Series(TEXTS, dtype=object),
        pd.DataFrame({"title": TEXTS}),
    ],
    ids=["tuple", "array", "objects", "column", "series", "string dtype", "object dtype", "frame"],
)
def test_texts_come_in_many_containers(encoder: TextEncoder, X: Any) -> None:
    assert same(encoder.transform(X), encoder.transform(TEXTS))
    assert same(TextEncoder(encoder.settings["network"]).fit(X).transform(TEXTS), encoder.transform(TEXTS))
    assert encoder.records(X)["text"].tolist() == TEXTS


@pytest.mark.parametrize(
    ("X", "facts"),
    [
        (["good", ""], ["row 1", "empty"]),
        (["good", "fine", " \t\n"], ["row 2", "blank"]),
        (["good", None], ["row 1", "missing"]),
        (pd.Series(["good", pd.NA], dtype="string"), ["row 1", "missing"]),
        (["good", float("nan")], ["row 1", "missing"]),
        (["good", 7], ["row 1", "int", 7]),
        ([b"bytes"], ["row 0", "bytes"]),
        (["good", "bad \ud800"], ["row 1", "surrogate"]),
        ("one text", ["str"]),
        (iter(["a"]), ["list"]),
        (np.array([["a", "b"]]), [(1, 2)]),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), ["column", 2]),
    ],
)
def test_what_is_not_a_text_is_named(encoder: TextEncoder, X: Any, facts: list[object]) -> None:
    with refuses(InputError, *facts):
        encoder.transform(X)
    with refuses(InputError, *facts):
        TextEncoder().fit(X)


def test_tokens_need_a_fit() -> None:
    with refuses(DwacError, "fit"):
        TextEncoder().tokens(TEXTS)


def test_no_texts_give_tensors_without_rows(encoder: TextEncoder) -> None:
    inputs = encoder.transform([])
    assert [len(column) for column in inputs] == [0] * len(inputs)
    assert encoder.network()(*inputs).shape[0] == 0
    assert encoder.records([]).shape == (0, 1)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"network": "nope"}, ["default", "paper"]),
        ({"min_count": 0}, ["min_count"]),
        ({"max_length": 2.5}, ["max_length"]),
        ({"max_length": 40_000}, ["max_length", 32767]),
        ({"dropout": 1.0}, ["dropout"]),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], facts: list[object]) -> None:
    with refuses(InputError, *facts):
        TextEncoder(**options)


# Words and n-grams


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("C++11, F# and ASP.NET", "c++ 11 , f# and asp .net"),
        ("node.js 1.5 costs 1,000.", "node .js 1.5 costs 1,000 ."),
        ("It’s what we don't know", "it 's what we do n't know"),
        ("wait... what?!", "wait ... what ? !"),
        ("cafe\u0301 NAÏVE Ελλάδα", "café naïve ελλάδα"),
        ("हिन्दी में", "हिन्दी में"),
        ("東京 tower", "東 京 tower"),
        ("snake_case \u200b", "snake_case \u200b"),
    ],
)
def test_words_that_belong_together_stay_whole(text: str, tokens: str) -> None:
    assert tokenise(text) == tokens.split(" ")


@settings(max_examples=50)
@given(st.text(min_size=1).filter(lambda text: not text.isspace()))
def test_every_text_has_tokens_and_none_has_spaces(text: str) -> None:
    tokens = tokenise(text)
    assert tokens
    assert not any(character.isspace() for token in tokens for character in token)


def test_hashes_never_change() -> None:
    assert word_hash("c++") == 1864149058
    assert word_hash("naïve") == 3574563174
    assert character_hashes("c#") == [1061545671, 3420105878, 375185619]
    pair = pair_hashes(np.array([1, 2**32 - 1], dtype=np.uint32), np.array([2, 3], dtype=np.uint32))
    assert pair.tolist() == [2853113480, 4086031761]


def test_a_long_word_gives_few_ngrams() -> None:
    assert len(character_hashes("x1" * 50_000)) < 120
    assert tokenise("x1" * 50_000) == ["x1" * 50_000]


def test_the_vocabulary_holds_frequent_words_in_a_fixed_order() -> None:
    texts = ["b a", "b c a", "b a a a", "d"]
    assert TextEncoder().fit(texts).vocabulary == ["a", "b"]
    assert TextEncoder(min_count=1).fit(texts).vocabulary == ["a", "b", "c", "d"]
    assert TextEncoder(min_count=1, max_words=1).fit(texts).vocabulary == ["a"]


def expected_ngrams(encoder: TextEncoder, text: str) -> list[tuple[int, int]]:
    """(hash, owner) of a text by the definition: words, pairs, characters; each where it is met first."""
    words = tokenise(text)[: encoder.transform([text])[0].shape[1]]
    hashes = [np.array([word_hash(word)], dtype=np.uint32) for word in words]
    met = [(int(h[0]), i) for i, h in enumerate(hashes)]
    met += [(int(pair_hashes(a, b)[0]), i) for i, (a, b) in enumerate(pairwise(hashes))]
    met += [(h, i) for i, word in enumerate(words) for h in character_hashes(word)]
    first: dict[int, int] = {}
    for h, owner in met:
        first.setdefault(h, owner)
    table = encoder.config()["ngrams"]
    return [(h, owner) for h, owner in first.items() if h in table]


@settings(max_examples=30)
@given(st.lists(st.text("ab c+.", min_size=1).filter(lambda text: text.strip()), min_size=1, max_size=6))
def test_ngrams_are_those_of_the_definition(texts: list[str]) -> None:
    encoder = TextEncoder(min_count=1).fit(texts)
    _, ngrams, owners, _ = encoder.transform(texts)
    table = encoder.config()["ngrams"]
    for text, row, places in zip(texts, ngrams.tolist(), owners.tolist(), strict=True):
        found = [(table[ngram - 1], place) for ngram, place in zip(row, places, strict=True) if ngram]
        assert found == expected_ngrams(encoder, text)[: len(row)]


def test_ngrams_do_not_depend_on_how_texts_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TextEncoder().fit(TEXTS)
    monkeypatch.setattr("dwac.encoders.text.CHUNK", 3)
    parts = TextEncoder().fit(TEXTS)
    assert whole.config() == parts.config()
    assert same(whole.transform(TEXTS), parts.transform(TEXTS))


def test_rare_ngrams_and_those_over_the_limit_are_left_out() -> None:
    many = len(TextEncoder(min_count=1).fit(TEXTS).config()["ngrams"])
    assert len(TextEncoder(min_count=3).fit(TEXTS).config()["ngrams"]) < many
    assert len(TextEncoder(min_count=1, max_features=20).fit(TEXTS).config()["ngrams"]) == 20
    assert TextEncoder(min_count=11).fit(TEXTS).transform(TEXTS)[1].sum() == 0


def test_unknown_words_share_an_index_and_misspelt_ones_keep_their_parts(encoder: TextEncoder) -> None:
    words, *ngrams = encoder.transform(["zzz pythonic"])
    assert words[0, :3].tolist() == [1, 1, 0]
    if ngrams:
        owners = ngrams[1][ngrams[0] > 0]
        assert owners.tolist() == [1] * len(owners)
        assert len(owners) > 5  # of "python"


def test_long_texts_are_cut(encoder: TextEncoder) -> None:
    long = encoder.transform([" ".join(["a list"] * 500)])
    assert [column.shape[1] for column in long] == [column.shape[1] for column in encoder.transform(TEXTS)]
    short = TextEncoder(encoder.settings["network"], max_length=3, max_ngrams=4).fit(TEXTS)
    assert [column.shape[1] for column in short.transform(TEXTS)] == [3, 4, 4, 1][: len(long)]
    assert short.tokens(["How do I sort"]) == [["how", "do", "i"]]


def test_long_texts_are_read_without_their_characters() -> None:
    long = [" ".join(f"word{i % 7} other{i % 5}" for i in range(100))] * 4
    tokens = tokenise(long[0])
    hashes = [np.array([word_hash(token)], dtype=np.uint32) for token in tokens]
    pairs = {int(pair_hashes(a, b)[0]) for a, b in pairwise(hashes)}
    assert set(TextEncoder().fit(long).config()["ngrams"]) == pairs | {word_hash(token) for token in tokens}


# Networks


def test_every_network_trains(encoder: TextEncoder) -> None:
    torch.manual_seed(0)
    network = encoder.network()
    inputs, y = encoder.transform(TEXTS), torch.tensor([0, 0, 1, 1, 0] * 2)
    model = WeightedAverage(network, 2, n_features=network(*inputs).shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=encoder.recipe.learning_rate)
    for _ in range(40):
        optimizer.zero_grad()
        model.loss(inputs, y).backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
        optimizer.step()
    model.remember([(inputs, y)])
    model.eval()
    assert model(encoder.transform(["c++ list", "python json"])).argmax(dim=1).tolist() == [0, 1]


def trained_looking(encoder: TextEncoder) -> Any:
    """A network with every weight at random, in evaluation mode: the table of n-grams starts at 0."""
    torch.manual_seed(1)
    network = encoder.network().eval()
    for name, weight in network.named_parameters():
        if name == "ngrams.weight":
            nn.init.normal_(weight[1:], std=0.1)
    return network


def test_padding_changes_nothing(encoder: TextEncoder) -> None:
    network, inputs = trained_looking(encoder), encoder.transform(TEXTS)
    together = network(*inputs)
    for i in range(5):
        alone = network(*(column[i : i + 1] for column in inputs))
        torch.testing.assert_close(alone[0], together[i], rtol=1e-5, atol=1e-6)
    wider = tuple(nn.functional.pad(column, (0, 9)) for column in inputs)
    torch.testing.assert_close(network(*wider), together, rtol=1e-5, atol=1e-6)


def test_different_texts_have_different_features(encoder: TextEncoder) -> None:
    features = trained_looking(encoder)(*encoder.transform(TEXTS[:5]))
    assert torch.pdist(features).min() > 1e-3


def test_attention_is_shared_among_the_tokens(encoder: TextEncoder) -> None:
    network, inputs, tokens = trained_looking(encoder), encoder.transform(TEXTS), encoder.tokens(TEXTS)
    attention = network.attention(*inputs)
    assert attention.shape == inputs[0].shape
    torch.testing.assert_close(attention.sum(dim=1), torch.ones(len(TEXTS)))
    index = {word: i for i, word in enumerate(encoder.vocabulary, start=2)}
    for weights, words, text in zip(attention, inputs[0], tokens, strict=True):
        assert bool((weights[: len(text)] > 0).all())
        assert bool((weights[len(text) :] == 0).all())
        assert words[: len(text)].tolist() == [index.get(token, 1) for token in text]
    network.train()
    torch.testing.assert_close(network.attention(*inputs), attention)
    assert all(module.training for module in network.modules())


def test_attention_says_where_the_features_come_from() -> None:
    network = AttentionCNN(9, size=4, filters=3, window=1).eval()
    words = torch.tensor([[2, 3, 4, 0]])
    values = torch.tanh(network.convolution(network.words(words).transpose(1, 2))).transpose(1, 2)
    expected = (network.attention(words)[:, :, None] * values).sum(dim=1)
    torch.testing.assert_close(network(words), expected)


def test_words_are_hidden_whole_and_only_in_training() -> None:
    network = SubwordNetwork(20, 30, hidden=0.9)
    words = torch.tensor([[2, 3, 4, 5, 0, 0], [6, 0, 0, 0, 0, 0]]).repeat(200, 1)
    visible = network.train().visible(words)
    assert not bool(visible[words == 0].any())
    assert bool(visible.any(dim=1).all())
    assert not bool(visible[words > 0].all())
    assert torch.equal(network.eval().visible(words), words > 0)
    # With its owner hidden, an n-gram is not visible: whatever it is, the features stay the same.
    nn.init.normal_(network.ngrams.weight)
    network.visible = lambda words: words == 3  # type: ignore[method-assign]
    owners = torch.tensor([[0, 1, 2]], dtype=torch.int16)
    one, other, visible_one = (
        network(words[:1], torch.tensor([ngrams]), owners, torch.zeros(1, 1))
        for ngrams in ([8, 7, 9], [11, 7, 12], [8, 13, 9])
    )
    torch.testing.assert_close(one, other)
    assert not torch.allclose(one, visible_one)


def test_unseen_ngrams_say_nothing_before_training() -> None:
    network: Any = TextEncoder().fit(TEXTS).network()
    assert float(network.ngrams.weight.detach().abs().max()) == 0


# Word vectors


def vectors_file(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_words_without_a_vector_start_as_widely_as_the_others_in_the_papers_network(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(1.0, 3.0, size=50)
    path = vectors_file(tmp_path / "v.txt", f"list {' '.join(map(str, numbers))}\n")
    texts = [f"list {i} word{i}" for i in range(200)]
    network = TextEncoder("paper", vectors=path, min_count=1).fit(texts).network()
    assert isinstance(network, AttentionCNN)
    weight = network.words.weight.detach()
    assert weight[0].abs().sum() == 0
    assert float(weight[1:].mean()) == pytest.approx(numbers.mean(), abs=0.1)
    assert float(weight[1:].std()) == pytest.approx(numbers.std(), abs=0.1)


def test_vectors_start_the_words_and_are_not_needed_again(tmp_path: Path) -> None:
    path = vectors_file(tmp_path / "v.txt", "list 1 2 3\nelephant 4 5 6\nlibrary 7 8 9e-1\nc++ -1 0 1\n")
    kept = {name: TextEncoder(name, vectors=path).fit(TEXTS[:5]) for name in NETWORKS}
    networks: dict[str, Any] = {name: encoder.network() for name, encoder in kept.items()}
    path.unlink()
    for name, encoder in kept.items():
        assert "library" in encoder.vocabulary  # met once, but with a vector
        assert encoder.vocabulary[-1] == "elephant"  # not met, but known by its vector
        table = networks[name].words if name == "paper" else networks[name].cnn.words
        assert table.weight.requires_grad
        place = encoder.vocabulary.index("library") + 2
        assert table.weight[place].tolist() == pytest.approx([7, 8, 0.9])
        again = restored(encoder)
        assert again.settings["vectors"] == str(path)
        again.network().load_state_dict(networks[name].state_dict())
        with refuses(InputError, "file"):
            again.fit(TEXTS)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("list 1 2\na 1\n", ["line 2", 2]),
        ("list 1 2\nb 1 2 3\n", ["line 2", 2]),
        ("list 1 x\n", ["line 1", 2]),
        ("list\n", ["line 1"]),
        ("b 1 2\n\nlist 1 2\n", ["line 2"]),
        ("list 1 nan\n", ["line 1", "list"]),
        ("b 1 2\n", [2, "words"]),
        ("", [2, "words"]),
    ],
)
def test_a_bad_line_of_vectors_is_named(tmp_path: Path, text: str, facts: list[object]) -> None:
    with refuses((InputError, NonFiniteError), *facts):
        read_vectors(vectors_file(tmp_path / "v.txt", text), {"list", "a"})


def test_words_that_training_lacks_are_known_after_its_own_in_the_files_order(tmp_path: Path) -> None:
    texts = ["b a rare", "b a", "a"]
    lines = ["zebra 1 1", "a 2 2", "yak 3 3", "rare 4 4", "ant 5 5", "b 6 6"]
    path = vectors_file(tmp_path / "v.txt", "\n".join(lines) + "\n")

    def vocabulary(**options: Any) -> list[str]:
        return TextEncoder(vectors=path, **options).fit(texts).vocabulary

    assert vocabulary() == ["a", "b", "rare", "zebra", "yak", "ant"]
    for most in range(1, 8):
        # The first words of the file, as many as there may be words, are known; of training's own, all.
        further = [line.split()[0] for line in lines[:most] if line.split()[0] in ("zebra", "yak", "ant")]
        assert vocabulary(max_words=most) == ["a", "b", "rare", *further][:most]
    vectors_file(path, "6 2\n" + "\n".join(lines) + "\n")  # a header is no word
    assert vocabulary() == ["a", "b", "rare", "zebra", "yak", "ant"]
    assert vocabulary(max_words=5) == ["a", "b", "rare", "zebra", "yak"]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_word_that_training_lacks_is_read_by_its_vector(name: str, tmp_path: Path) -> None:
    path = vectors_file(tmp_path / "v.txt", "list 1 2 3\nelephant 4 5 6\nlibrary 7 8 9\n")
    encoder = TextEncoder(name, vectors=path).fit(TEXTS)
    network: Any = encoder.network()
    words = encoder.transform(["elephant unheard"])[0]
    assert words[0, :2].tolist() == [encoder.vocabulary.index("elephant") + 2, 1]
    cnn = network if name == "paper" else network.cnn
    table = cnn.words.weight.detach()
    for word, vector in (("list", [1, 2, 3]), ("elephant", [4, 5, 6]), ("library", [7, 8, 9])):
        assert table[encoder.vocabulary.index(word) + 2].tolist() == vector
    assert len(table) == len(encoder.vocabulary) + 2
    again = restored(encoder)
    assert again.vocabulary == encoder.vocabulary
    assert torch.equal(again.transform(["elephant"])[0], encoder.transform(["elephant"])[0])


def test_only_the_first_words_of_a_file_and_those_asked_for_are_read(tmp_path: Path) -> None:
    path = vectors_file(tmp_path / "v.txt", "x 1 2\ny 3 4\nz 5 6\nlist 7 8\n")
    assert list(read_vectors(path, {"list"})) == ["list"]
    assert list(read_vectors(path, {"list"}, further=2)) == ["x", "y", "list"]
    assert list(read_vectors(path, {"list", "x"}, further=9)) == ["x", "y", "z", "list"]
    with refuses(InputError, 1):
        read_vectors(path, {"other"}, further=9)  # a file of another language is still found out
    for text, fact in (("x 1 2\ny 1 a\nlist 1 2\n", "line 2"), ("x 1 2\ny 1 inf\nlist 1 2\n", "y")):
        with refuses(InputError, fact):
            read_vectors(vectors_file(path, text), {"list"}, further=2)


def test_an_ensembles_attention_is_the_mean_of_its_members(encoder: TextEncoder) -> None:
    torch.manual_seed(0)
    members = [encoder.network().eval() for _ in range(3)]
    together = encoder.attention(Ensemble(members), TEXTS) or []
    each = [encoder.attention(member, TEXTS) or [] for member in members]
    for row, text in enumerate(encoder.tokens(TEXTS)):
        words, weights = zip(*together[row], strict=True)
        assert list(words) == text
        assert weights == pytest.approx(np.mean([[weight for _, weight in own[row]] for own in each], axis=0))
        assert sum(weights) == pytest.approx(1, abs=1e-5)


def test_vectors_may_have_a_header_and_words_with_spaces(tmp_path: Path) -> None:
    path = vectors_file(tmp_path / "v.vec", "3 2\nlist 1 2 \nat name@domain 3 4\nnaïve 5 6\n")
    found = read_vectors(path, {"list", "at", "naïve"})
    assert {word: vector.tolist() for word, vector in found.items()} == {"list": [1, 2], "naïve": [5, 6]}
    with refuses(InputError, "file"):
        read_vectors(tmp_path, {"list"})


# Hugging Face models


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("tiny-bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted({word for text in TEXTS for word in tokenise(text)})]
    numbered = {word: i for i, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbered, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=14,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_hugging_face_model_is_a_backbone(tiny_bert: Path, pooling: str) -> None:
    encoder = HuggingFaceEncoder(tiny_bert, pooling=pooling, trained_layers="all").fit(TEXTS)
    ids, mask = encoder.transform(TEXTS)
    assert ids.shape == mask.shape == (10, 12)  # two of 14 places are never used
    assert ids.dtype == mask.dtype == torch.int64
    network = encoder.network()
    model = WeightedAverage(network, 2, n_features=16)
    model.loss((ids, mask), torch.tensor([0, 0, 1, 1, 0] * 2)).backward()
    gradients = [p.grad for p in model.parameters() if p.requires_grad]
    assert all(g is not None and torch.isfinite(g).all() for g in gradients)
    network.eval()
    together = network(ids, mask)
    for i in range(5):
        n = int(mask[i].sum())
        alone = network(ids[i : i + 1, :n], mask[i : i + 1, :n])
        torch.testing.assert_close(alone[0], together[i], rtol=1e-4, atol=1e-5)
    assert encoder.records(TEXTS)["text"].tolist() == TEXTS
    assert [column.shape for column in encoder.transform([])] == [(0, 12), (0, 12)]


def test_a_saved_hugging_face_encoder_needs_no_folder(tiny_bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_bert, tmp_path / "model")
    encoder = HuggingFaceEncoder(folder, max_length=8).fit(TEXTS)
    network = encoder.network().eval()
    again = restored(encoder)
    shutil.rmtree(folder)
    assert same(again.transform(TEXTS), encoder.transform(TEXTS))
    other = again.network()
    other.load_state_dict(network.state_dict())
    torch.testing.assert_close(other.eval()(*again.transform(TEXTS)), network(*encoder.transform(TEXTS)))
    assert again.recipe == encoder.recipe
    assert str(folder) not in json.dumps(again.config()["model"])
    with refuses(InputError, "local_files_only=False"):
        again.fit(TEXTS)


def test_an_unfitted_hugging_face_encoder_is_copied_by_its_configuration(tiny_bert: Path) -> None:
    again = restored(HuggingFaceEncoder(tiny_bert, pooling="first"))
    assert repr(again).startswith(f"HuggingFaceEncoder(name_or_folder={str(tiny_bert)!r}, pooling='first', max_length=")
    with refuses(DwacError, "fit"):
        again.transform(TEXTS)
    networks: list[Any] = [e.fit(TEXTS).network() for e in (again, HuggingFaceEncoder(tiny_bert))]
    first, second = (network.shared.state_dict() for network in networks)
    assert same(tuple(first.values()), tuple(second.values()))  # the pretrained weights


def test_a_fixed_model_reads_each_text_once_and_stays_as_it_is(tiny_bert: Path, tmp_path: Path) -> None:
    X, y = [f"{text} {i}" for i, text in enumerate(TEXTS * 3)], np.arange(30) % 2
    clf = DWACClassifier(f"huggingface:{tiny_bert}", epochs=2, random_state=0, verbose=False, device="cpu")
    read, forward = [], PooledModel.forward

    def counted(self: PooledModel, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        read.append(self.training)
        return forward(self, ids, mask)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PooledModel, "forward", counted)
        clf.fit(X, y)
    assert read == [False]
    network: Any = clf.encoder_.network()
    backbone: Any = clf.model_.backbone
    assert len(backbone) == clf.model_.ensemble_size == 4
    before = network.shared.state_dict()
    assert all(torch.equal(part, before[name]) for name, part in backbone.shared.state_dict().items())
    p = clf.predict_proba(X)
    np.testing.assert_array_equal(np.concatenate([clf.predict_proba([text]) for text in X[:6]]), p[:6])
    clf.save(tmp_path / "model")
    np.testing.assert_allclose(dwac.load(tmp_path / "model").predict_proba(X), p, atol=1e-6)


@pytest.mark.parametrize("layers", [0, "all"])
def test_n_grams_vote_beside_a_pretrained_model(tiny_bert: Path, tmp_path: Path, layers: int | str) -> None:
    X, y = [f"{text} {i}" for i, text in enumerate(TEXTS * 4)], np.arange(40) % 2
    encoder = HuggingFaceEncoder(tiny_bert, trained_layers=layers, ngrams=True)
    clf = DWACClassifier(encoder, epochs=2, random_state=0, verbose=False, device="cpu").fit(X, y)
    backbone: Any = clf.model_.backbone
    assert [len(part) for part in (backbone.members, backbone.beside)] == [4 if layers == 0 else 1, 1]
    assert len(clf.encoder_.transform(X)) == 6
    shares = {group["share"] for group in groups_of(clf.model_)}
    assert {1.0, 5.0 if layers == 0 else 10.0} <= shares
    p = clf.predict_proba(X)
    np.testing.assert_array_equal(np.concatenate([clf.predict_proba([text]) for text in X[:6]]), p[:6])
    np.testing.assert_array_equal(clf.predict_proba([X[3], X[0], X[3]]), p[[3, 0, 3]])
    clf.save(tmp_path / "model")
    np.testing.assert_allclose(dwac.load(tmp_path / "model").predict_proba(X), p, atol=1e-6)
    again = restored(clf.encoder_)
    assert same(again.transform(X), clf.encoder_.transform(X))
    again._chosen["ngram_networks"] = 0
    with refuses(InputError, "ngram_networks", 1, 0):
        restored(again)


def test_n_grams_need_enough_texts_unless_asked_for(tiny_bert: Path) -> None:
    few, many = TEXTS, [f"{text} {i}" for i, text in enumerate(TEXTS * 200)]
    for texts, asked, expected in ((few, "auto", 2), (few, True, 6), (many, "auto", 6), (many, False, 2)):
        assert len(HuggingFaceEncoder(tiny_bert, ngrams=asked).fit(texts).transform(few)) == expected
    wrong: Any
    for wrong in ("words", 1):
        with refuses(InputError, "ngrams", "auto", repr(wrong)):
            HuggingFaceEncoder(tiny_bert, ngrams=wrong)


def test_lower_layers_learn_more_slowly_or_not_at_all(tiny_bert: Path) -> None:
    network: Any = HuggingFaceEncoder(tiny_bert, trained_layers=1).fit(TEXTS).network()
    learning = {name for name, part in network.named_parameters() if part.requires_grad}
    assert learning
    assert all(".layer.1." in name for name in learning)
    rates = {".layer.1.": 0.1, ".layer.0.": 0.09, "embeddings": 0.081}
    for name, rate in network.rates.items():
        assert rate == pytest.approx(next((rates[part] for part in rates if part in name), 0.1))
    model = WeightedAverage(network, 2, n_features=16)
    shares = {group["share"]: len(group["params"]) for group in groups_of(model)}
    assert shares.pop(1.0) == 2  # the embedding layer is new
    assert sum(shares.values()) == len(network.rates)


def test_a_model_is_pooled_as_sentence_transformers_does(tiny_bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_bert, tmp_path / "model")
    modules = [{"path": "", "type": "x.models.Transformer"}, {"path": "1_Pooling", "type": "x.models.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    (folder / "1_Pooling").mkdir()
    for asked, expected in (
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode_mean_tokens": True, "include_prompt": True}, "mean"),  # as later versions write it
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "cls", "include_prompt": True}, "first"),
    ):
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(asked))
        encoder = HuggingFaceEncoder(folder).fit(TEXTS)
        assert encoder.config()["chosen"]["pooling"] == expected
        assert encoder.transform(TEXTS)[0].shape[1] == 5
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with refuses(InputError, "max_tokens"):
        HuggingFaceEncoder(folder).fit(TEXTS)
    assert HuggingFaceEncoder(folder, pooling="first", max_length=7).fit(TEXTS).transform(TEXTS)[0].shape[1] == 7


def test_a_model_may_come_in_a_package(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(tiny_bert, tmp_path / "some_tiny_bert" / "files")
    (tmp_path / "some_tiny_bert" / "__init__.py").write_text("raise RuntimeError('code of a model is never run')")
    monkeypatch.syspath_prepend(tmp_path)
    network: Any = HuggingFaceEncoder("some-tiny-bert").fit(TEXTS).network()
    assert network.shared.width == 16


def test_weights_other_than_safetensors_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_bert, tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with refuses(InputError, folder, "AutoModel", "model.safetensors"):
        HuggingFaceEncoder(folder).fit(TEXTS).network()


def test_a_hugging_face_model_must_be_there_and_be_an_encoder(tiny_bert: Path, tmp_path: Path) -> None:
    with refuses(InputError, "local_files_only=False"):
        HuggingFaceEncoder(tmp_path / "nothing").fit(TEXTS)
    folder = shutil.copytree(tiny_bert, tmp_path / "t5")
    (folder / "config.json").write_text('{"model_type": "t5", "is_encoder_decoder": true}')
    with refuses(InputError, "encoder"):
        HuggingFaceEncoder(folder).fit(TEXTS)
    with refuses(InputError, "auto", "mean", "first"):
        HuggingFaceEncoder(tiny_bert, pooling="max")
    with refuses(ShapeError, 1):
        HuggingFaceEncoder(tiny_bert).fit([])
    with refuses(InputError, 1):
        HuggingFaceEncoder(tiny_bert).fit(["a", None])


def test_without_transformers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(hf_tokenizer, "import_module", missing)
    with refuses(DwacError, "pip install 'dwac[text]'"):
        HuggingFaceEncoder("any").fit(TEXTS)


def test_ngrams_start_from_what_they_speak_for() -> None:
    texts = ["good film", "good story", "bad film", "bad story"] * 5
    labels = np.array(["yes", "yes", "no", "no"] * 5)
    encoder = TextEncoder().fit(texts, labels)
    evidence = encoder._evidence
    assert evidence is not None
    good, film = (encoder._lookup(np.array([word_hash(word)], dtype=np.uint32))[0] for word in ("good", "film"))
    assert evidence[good].tolist() == pytest.approx([-np.log(11) / 2, np.log(11) / 2], rel=1e-5)  # (0 + 1) to (10 + 1)
    assert evidence[film].tolist() == pytest.approx([0, 0], abs=1e-6)
    table: Any = encoder.network().ngrams.weight  # type: ignore[union-attr]
    assert table[good].abs().sum() > 0
    assert not table[0].any()
    assert not table[film].abs().max() > 1e-5
    assert not encoder.member().ngrams.weight.any()  # type: ignore[union-attr,operator]


def test_ngrams_start_from_nothing_without_labels() -> None:
    network: Any = TextEncoder().fit(["good film", "bad film"] * 5).network()
    assert not network.ngrams.weight.any()


def test_evidence_needs_one_label_per_text() -> None:
    with refuses(ShapeError, "(4,)", "(3,)"):
        TextEncoder().fit(["good film", "bad film"] * 2, [0, 1, 0])


def test_the_table_of_linear_scores_has_fewer_ngrams_the_more_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = ["sort a list", "sort a heap", "parse a file", "parse json"] * 3, np.arange(12)
    monkeypatch.setattr("dwac.encoders.text._SCORES", 60)
    by_size = {n: TextEncoder("linear").fit(X, y % n) for n in (1, 2, 4, 12)}
    assert [len(encoder.config()["ngrams"]) for encoder in by_size.values()] == [60, 30, 15, 5]
    assert sorted(by_size[12].config()["texts"]) == sorted(by_size[1].config()["texts"])[-5:]  # the most frequent
    assert len(TextEncoder("linear", max_features=10).fit(X, y % 2).config()["ngrams"]) == 10


def test_ngrams_of_one_text_count_outside_the_norm() -> None:
    """A new text has no counterpart of them in the table, and must be scored on the same scale."""
    encoder = TextEncoder("linear", max_ngrams=4096).fit(["sort a list", "sort a list now", "sort a heap"])
    shares = encoder.transform(["sort a list", "sort a list now", "sort a list zzz"])[1].double().square().sum(dim=1)
    assert shares[0] == pytest.approx(2)  # words and pairs, and runs of characters
    assert shares[1] > 2.1
    assert shares[2] == pytest.approx(2)
    strange = encoder.transform(["sort a list", "sort a list now"])[2][:, 0]
    assert strange[1] > strange[0] == 0  # "now" does not recur
