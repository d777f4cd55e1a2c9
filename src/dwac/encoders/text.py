"""Texts as tensors: words, and the hashes of their n-grams.

encoder = TextEncoder().fit(X)                           # X: one text per example
words, ngrams, owners = encoder.transform(X)             # int64 (n, length), int32 (n, m), int16 (n, m)
features = encoder.network()(words, ngrams, owners)      # (n, 128)
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from dwac import _checks as checks
from dwac.encoders.base import Encoder, Recipe, require_one
from dwac.encoders.text_networks import UNKNOWN, AttentionCNN, LinearNetwork, SubwordNetwork, read_vectors
from dwac.errors import DwacError, InputError, KindError, ShapeError
from dwac.explain.claims import words as words_of
from dwac.nn.batches import Inputs
from dwac.nn.ensemble import Ensemble

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint32]

CHUNK = 4096  # texts whose n-grams are in memory at once
_SIZES = range(3, 6)  # lengths of character n-grams
_LONGEST_WORD = 40  # characters of a word that become n-grams
_FARTHEST = 2**15 - 1  # the largest position of a word that fits into an int16
_CHARACTERS = 600_000  # characters compared of all texts together: some 0.1 s
_BEGINNING = 300  # characters compared of each text, however many texts there are
_HIGH = 0.999  # texts are cut at this quantile of training lengths
_RECURRING = 2  # training texts: an n-gram in fewer says little of other texts
_RUN = 2  # the kind of n-grams that are runs of characters
_NETWORKS = ("default", "linear", "paper")
_MOST_NGRAMS, _CELLS = 4096, 2**25  # n-grams read for linear scores: by default per text, and of all texts together
_SCORES = 2**24  # size of the table of linear scores, n-grams × classes: more than 128 classes have fewer n-grams

# Accents and vowel signs belong to their word, though \w excludes many; each ideograph or kana is a word.
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0df3\u0e31-\u0e4e"
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = rf"[^\W{_SINGLE}]+(?:[{_MARKS}]+[^\W{_SINGLE}]*)*"
_TOKEN = re.compile(
    r"\d+(?:[.,]\d+)+"  # 3.5
    r"|\w+?(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b"  # do n't, it 's: as in GloVe
    rf"|\.?(?!\d){_WORD}(?:\+\+|\#)?"  # c++, c#, .net
    rf"|{_WORD}|[{_SINGLE}][{_MARKS}]*"
    r"|\.{2,}|!{2,}|\?{2,}|-{2,}|={2,}|\*{2,}|[^\w\s]"
)


def tokenise(text: str) -> list[str]:
    """The words and punctuation marks of a text, in lower case.

    >>> tokenise("Why doesn't C++ (or C#) run on ASP.NET 3.5?")
    ['why', 'does', "n't", 'c++', '(', 'or', 'c#', ')', 'run', 'on', 'asp', '.net', '3.5', '?']
    """
    return _TOKEN.findall(unicodedata.normalize("NFC", text).lower().replace("’", "'"))


def word_hash(word: str) -> int:
    """The 32-bit hash of a whole word: CRC-32 of its UTF-8 bytes, the same on every machine and in every run."""
    return zlib.crc32(word.encode())


def character_hashes(word: str) -> list[int]:
    """The hashes of a word's distinct character n-grams of length 3 to 5; < and > mark its beginning and end."""
    marked = f"<{word[:_LONGEST_WORD]}>"
    ngrams = dict.fromkeys(marked[i : i + size] for size in _SIZES for i in range(len(marked) - size + 1))
    return [zlib.crc32(ngram.encode(), 1) for ngram in ngrams]  # 1: differs from the hashes of words


def pair_hashes(first: Hashes, second: Hashes) -> Hashes:
    """The hashes of pairs of words, from the hashes of the words; the order matters."""
    return first * np.uint32(0x9E3779B1) + second * np.uint32(0x85EBCA6B) + np.uint32(1)


class Texts(Encoder):
    """The common base of encoders of texts: how texts are shown and compared."""

    def records(self, X: Any) -> pd.DataFrame:
        """The texts, in one column "text"."""
        return pd.DataFrame({"text": pd.Series(texts_of(X), dtype="str")})

    def input_distances(self, X_one: Any, X_many: Any) -> NDArray[np.float64]:
        """(n,): 1 - cosine of the sets of words, rare words weighing more; see `Encoder.input_distances`."""
        one = texts_of(X_one)
        require_one(len(one))
        return word_distances(one[0], texts_of(X_many))


class TextEncoder(Texts):
    """Texts as tensors: a list, tuple, array or Series of strings, or a DataFrame with one column of strings.

    Fit learns a vocabulary, the recurring n-grams, and the lengths of texts. N-grams are words, pairs of neighbouring
    words, and the runs of 3 to 5 characters in each word. Character runs are left out if those of a typical text would
    not fit: for long texts words are enough.

    Args:
        network: "default": a bag of n-grams next to a CNN with attention. "paper": only that CNN, as in the paper.
            "linear": scores of the classes, linear in the n-grams, for fewer than 30,000 texts; they are cross-fitted.
        vectors: a file of initial word vectors in GloVe's format; without it they start at random. Its first words
            enter the vocabulary even if they are not in the training texts.
        min_count: words and n-grams in fewer training texts than this are ignored; by default 2, or 1 for "linear".
        max_words: size limit of the vocabulary.
        max_length: how many words of a text are read, from its start; by default 400, or 4,000 for "linear".
        max_features: size limit of the table of n-grams, most frequent first; for "linear" also 2**24 / classes.
        max_ngrams: limit of the n-grams read per text, words and pairs first; by default 512, or 4,096 for "linear".
        dropout: "default": share of words hidden in training. "paper": dropout rate of the word vectors.

    >>> encoder = TextEncoder(min_count=1).fit(["sort a list", "parse json"])
    >>> encoder.vocabulary
    ['a', 'json', 'list', 'parse', 'sort']
    >>> encoder.transform(["sort json quickly"])[0]
    tensor([[6, 3, 1]])
    """

    kind = "text"

    def __init__(
        self,
        network: str = "default",
        *,
        vectors: str | Path | None = None,
        min_count: int | None = None,
        max_words: int = 50_000,
        max_length: int | None = None,
        max_features: int = 2**17,
        max_ngrams: int | None = None,
        dropout: float = 0.5,
    ) -> None:
        if network not in _NETWORKS:
            raise InputError(f"unknown network {network!r} for texts; choose {', '.join(map(repr, _NETWORKS))}")
        if not 0 <= dropout < 1:
            raise InputError(f"dropout must lie in [0, 1); got {dropout!r}")
        linear = network == "linear"
        length = (4_000 if linear else 400) if max_length is None else max_length
        if length > _FARTHEST:
            raise InputError(f"max_length must be at most {_FARTHEST}; got {length}")
        sizes = {
            "min_count": (1 if linear else _RECURRING) if min_count is None else min_count,
            "max_words": max_words,
            "max_length": length,
            "max_features": max_features,
            "max_ngrams": (_MOST_NGRAMS if linear else 512) if max_ngrams is None else max_ngrams,
        }
        self.settings: dict[str, Any] = {
            "network": network,
            "vectors": None if vectors is None else str(vectors),
            **{name: checks.positive_int(size, name) for name, size in sizes.items()},
            "dropout": float(dropout),
        }
        self.vocabulary: list[str] = []
        self._ngrams: Hashes = np.zeros(0, dtype=np.uint32)  # sorted
        self._texts: Ints = np.zeros(0, dtype=np.int64)  # for linear scores: how many training texts have each of them
        self._sizes = {"rows": 0, "length": 0, "ngrams": 0, "vector": 0, "classes": 0}
        self._characters = True
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self._evidence: NDArray[np.float32] | None = None
        self._choose_recipe()

    def _choose_recipe(self) -> None:
        if self.settings["network"] == "linear":
            self.recipe = Recipe(threads=1)
            return
        few, small = self._sizes["rows"] < 600, self._sizes["rows"] < 2000
        if self.settings["network"] == "paper":
            self.recipe = Recipe(50, batch_size=64, learning_rate=1e-3, weight_decay=0.0, patience=5, compiled=True)
            return
        # Few words decide a short text, so votes easily become overconfident: a strong penalty keeps classes close.
        self.recipe = Recipe(
            epochs=60 if few else 24,
            batch_size=64 if small else 256,
            learning_rate=5e-3,
            weight_decay=1e-2,
            patience=15 if few else 12 if small else 8,
            # Most n-grams are rare. With a slow average of squares, each rare gradient moves its n-gram far: by
            # 1/√(1-β₂) learning rates, 32 at 0.999.
            beta2=0.95,
            penalty=1e-2,
            ensemble_size=4,
            compiled=True,
            threads=2,
        )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the vocabulary, the recurring n-grams and the lengths; from labels, the evidence of each n-gram."""
        corpus = _Corpus.read(texts_of(X), None)
        if corpus.n == 0:
            raise ShapeError("at least 1 text is required; got 0")
        settings = self.settings
        length = _high_quantile(np.bincount(corpus.text, minlength=corpus.n), settings["max_length"])
        corpus = corpus.cut(length)
        self._sizes = {"rows": corpus.n, "length": length, "ngrams": 0, "vector": 0, "classes": 0}
        if settings["network"] == "linear":
            self._sizes["classes"] = 0 if y is None else len(np.unique(np.asarray(y)))
            self._learn_ngrams(corpus)
            return self
        if settings["vectors"] is not None:
            self._vectors = read_vectors(settings["vectors"], set(corpus.words), settings["max_words"])
        self.vocabulary = self._frequent_words(corpus)
        known = set(self.vocabulary)  # words that are not in training have vectors
        self.vocabulary += [word for word in self._vectors if word not in known]
        del self.vocabulary[settings["max_words"] :]
        if self._vectors:
            self._sizes["vector"] = len(next(iter(self._vectors.values())))
        if settings["network"] == "default":
            self._learn_ngrams(corpus)
            self._evidence = None if y is None else self._weigh_ngrams(corpus, y)
        self._choose_recipe()
        return self

    def _frequent_words(self, corpus: _Corpus) -> list[str]:
        """The words with an index of their own, most frequent first; a word with a vector may occur only once."""
        n = len(corpus.words)
        counts = np.bincount(np.unique(corpus.text * n + corpus.ids) % n, minlength=n)
        counted = [
            (-int(count), word)
            for word, count in zip(corpus.words, counts, strict=True)
            if count >= self.settings["min_count"] or (count and word in self._vectors)
        ]
        return [word for _, word in sorted(counted)[: self.settings["max_words"]]]

    def _learn_ngrams(self, corpus: _Corpus) -> None:
        limit, linear = self.settings["max_ngrams"], self.settings["network"] == "linear"
        size = self.settings["max_features"]
        if linear:
            limit = max(1, min(limit, _CELLS // corpus.n))
            size = max(1, min(size, _SCORES // max(1, self._sizes["classes"])))
        runs = [sum(max(len(word) + 3 - size, 0) for size in _SIZES) for word in corpus.words]
        typical = np.median(np.bincount(corpus.text, np.array(runs)[corpus.ids] + 2))  # plus each word and a pair
        self._characters = bool(typical <= limit)
        all_hashes = [grams.hash for grams in corpus.ngrams(self._characters)]
        hashes, counts = np.unique(np.concatenate(all_hashes), return_counts=True)
        recurring = counts >= self.settings["min_count"]
        hashes, counts = hashes[recurring], counts[recurring]
        most = np.sort(np.lexsort((hashes, -counts))[:size])
        self._ngrams = hashes[most]
        self._texts = counts[most] if linear else self._texts
        known = np.concatenate([each.text[self._lookup(each.hash) > 0] for each in corpus.ngrams(self._characters)])
        self._sizes["ngrams"] = _high_quantile(np.bincount(known, minlength=corpus.n), limit)

    def _weigh_ngrams(self, corpus: _Corpus, y: Any) -> NDArray[np.float32]:
        """(n-grams + 1, K): log P(n-gram given class), with add-one smoothing, minus its mean over classes."""
        classes, codes = np.unique(np.asarray(y), return_inverse=True)
        if codes.shape != (corpus.n,):
            raise ShapeError(f"y must have one label per text, shape ({corpus.n},); got {np.shape(y)}")
        counts = np.ones((len(self._ngrams) + 1, len(classes)), dtype=np.float32)
        for grams in corpus.ngrams(self._characters):
            np.add.at(counts, (self._lookup(grams.hash), codes[grams.text]), 1)
        evidence: NDArray[np.float32] = np.log(counts) - np.log(np.bincount(codes) + 2).astype(np.float32)
        evidence[0] = 0  # n-grams outside the table are not evidence
        evidence -= evidence.mean(axis=1, keepdims=True)
        return evidence

    def transform(self, X: Any) -> Inputs:
        """words (n, length) int64; for the default network ngrams (n, m) int32, owners (n, m) int16 and strange (n, 1).

        For linear scores: ngrams (n, m) int32, their shares (n, m), strange (n, 1), and a shift (n, K) of 0; see
        `LinearNetwork`. Padded with 0. A word outside the vocabulary has index 1; an n-gram outside the table is left
        out. The owner of an n-gram is the position of its word in the text; for a pair, that of the first word.
        `strange` measures how many n-grams of a text are unknown.
        """
        self._require_fit()
        corpus = _Corpus.read(texts_of(X), self._sizes["length"])
        if self.settings["network"] == "linear":
            return *self._read_ngrams(corpus), torch.zeros(corpus.n, self._sizes["classes"])
        index_of = {word: i for i, word in enumerate(self.vocabulary, start=UNKNOWN + 1)}
        indices = np.array([index_of.get(word, UNKNOWN) for word in corpus.words], dtype=np.int64)
        words = np.zeros((corpus.n, self._sizes["length"]), dtype=np.int64)
        words[corpus.text, corpus.place] = indices[corpus.ids]
        if self.settings["network"] == "paper":
            return (torch.from_numpy(words),)
        return torch.from_numpy(words), *self._read_ngrams(corpus)

    def transform_left_out(self, X: Any, groups: Ints | None = None) -> Inputs:
        """`transform` of the training texts for linear scores, each as strange as if it had been left out."""
        del groups
        corpus = _Corpus.read(texts_of(X), self._sizes["length"])
        return *self._read_ngrams(corpus, left_out=True), torch.zeros(corpus.n, self._sizes["classes"])

    def _read_ngrams(self, corpus: _Corpus, *, left_out: bool = False) -> Inputs:
        """ngrams (n, m), their shares or owners (n, m), and strange (n, 1), as in `transform`."""
        linear = self.settings["network"] == "linear"
        ngrams = np.zeros((corpus.n, self._sizes["ngrams"]), dtype=np.int32)
        beside = np.zeros(ngrams.shape, dtype=np.float32 if linear else np.int16)
        strange = np.zeros((corpus.n, 1), dtype=np.float32)
        for grams in corpus.ngrams(self._characters):
            index = self._lookup(grams.hash)
            self._measure_strangeness(strange, grams, index, left_out=left_out)
            grams, column, index = self._keep_known(grams, index)
            ngrams[grams.text, column] = index
            beside[grams.text, column] = self._shares(grams, index) if linear else grams.owner
        return torch.from_numpy(ngrams), torch.from_numpy(beside), torch.from_numpy(strange)

    def _keep_known(self, grams: _Grams, index: Ints) -> tuple[_Grams, Ints, Ints]:
        """The n-grams that are read, with their numbers in the text and their places in the table."""
        grams, index = grams.at(index > 0), index[index > 0]
        column = np.arange(len(index)) - np.searchsorted(grams.text, grams.text)
        fits = column < self._sizes["ngrams"]
        return grams.at(fits), column[fits], index[fits]

    def _measure_strangeness(
        self, strange: NDArray[np.float32], grams: _Grams, index: Ints, *, left_out: bool = False
    ) -> None:
        """Fill in for these texts the root mean square of the unknown shares of words, of pairs, and of character runs.

        What recurs in the training texts is known. left_out: the texts are training texts, and do not make their
        n-grams known themselves.
        """
        if len(index) == 0:
            return
        known = index > 0
        if len(self._texts):  # the table has all n-grams, not only those that recur
            known &= self._texts[index - 1] >= _RECURRING + left_out
        first, last = grams.text[[0, -1]]
        part, n = 3 * (grams.text - first) + grams.kind, last - first + 1
        totals, unknown = np.bincount(part, minlength=3 * n), np.bincount(part, ~known, minlength=3 * n)
        shares = (unknown / totals.clip(1)).reshape(-1, 3)
        strange[first : last + 1, 0] = np.sqrt(np.square(shares).mean(axis=1))

    def _shares(self, grams: _Grams, index: Ints) -> NDArray[np.float64]:
        """How much n-grams count in a text: rare and repeated ones more, words and pairs as much as runs of characters.

        tf-idf, divided by the norm of the n-grams of either kind. Those of one training text alone do not count in the
        norm: the n-grams that only a new text has are not in the table.
        """
        texts = self._texts[index - 1]
        idf = 1 + np.log((1 + self._sizes["rows"]) / (1 + texts))
        values, part = (1 + np.log(grams.times)) * idf, 2 * (grams.text - grams.text[:1]) + (grams.kind == _RUN)
        all_squares = np.bincount(part, values**2)
        squares = np.bincount(part, np.where(texts >= _RECURRING, values**2, 0), minlength=len(all_squares))
        return np.asarray(values / np.sqrt(np.where(squares > 0, squares, all_squares))[part])

    def _lookup(self, hashes: Hashes) -> Ints:
        """The positions of n-grams in the table, starting at 1; 0 if not in it."""
        if len(self._ngrams) == 0:
            return np.zeros(len(hashes), dtype=np.int64)
        place = np.searchsorted(self._ngrams, hashes).clip(max=len(self._ngrams) - 1)
        return np.where(self._ngrams[place] == hashes, place + 1, 0)

    def tokens(self, X: Any) -> list[list[str]]:
        """The words read from each text, aligned with the columns of `words` and of the network's `attention`."""
        self._require_fit()
        return [tokenise(text)[: self._sizes["length"]] for text in texts_of(X)]

    @torch.no_grad()
    def attention(self, network: nn.Module, X: Any) -> list[tuple[tuple[str, float], ...]] | None:
        """The words read from each text, each with its share of the network's attention."""
        if isinstance(network, LinearNetwork):
            return self._influence(network, X)
        assert isinstance(network, AttentionCNN | SubwordNetwork | Ensemble)
        device = next(network.parameters()).device
        weights = network.attention(self.transform(X)[0].to(device)).cpu().tolist()
        return [tuple(zip(words, row, strict=False)) for words, row in zip(self.tokens(X), weights, strict=True)]

    def _influence(self, network: LinearNetwork, X: Any) -> list[tuple[tuple[str, float], ...]]:
        """The words of each text, each with its share in how far the scores of classes are apart."""
        corpus, tokens = _Corpus.read(texts_of(X), self._sizes["length"]), self.tokens(X)
        apart = (network.weight - network.weight.mean(dim=1, keepdim=True)).abs().amax(dim=1).cpu().double().numpy()
        sums = np.zeros((corpus.n, self._sizes["length"]))
        for grams in corpus.ngrams(self._characters):
            grams, _, index = self._keep_known(grams, self._lookup(grams.hash))
            np.add.at(sums, (grams.text, grams.owner), self._shares(grams, index) * apart[index])
        totals = [float(row[: len(words)].sum()) for row, words in zip(sums, tokens, strict=True)]
        return [
            tuple(
                (word, float(part) / total if total else 1 / len(words)) for word, part in zip(words, row, strict=False)
            )
            for words, row, total in zip(tokens, sums, totals, strict=True)
        ]

    def network(self) -> nn.Module:
        """A new network, with (n, 200) features for the paper's, (n, 128) for the default, and linear scores (n, K).

        After `fit`, it starts from the vectors of a file and the evidence of n-grams; a restored encoder's network gets
        its weights from the saved model instead.
        """
        network = self.member()
        if self._evidence is not None:
            assert isinstance(network, SubwordNetwork)
            network.start_from(torch.from_numpy(self._evidence))
        return network

    def member(self) -> nn.Module:
        """A new network without evidence: networks with a common start agree more, and gain less as an ensemble."""
        self._require_fit()
        if self.settings["network"] == "linear":
            return LinearNetwork(len(self._ngrams) + 1, self._sizes["classes"])
        n_words, size = len(self.vocabulary) + UNKNOWN + 1, self._sizes["vector"]
        if self.settings["network"] == "paper":
            cnn = AttentionCNN(n_words, size or 300, dropout=self.settings["dropout"])
            network: nn.Module = cnn
        else:
            hidden = self.settings["dropout"]
            network = SubwordNetwork(n_words, len(self._ngrams) + 1, word_size=size or 64, hidden=hidden)
            cnn = network.cnn
        places = [i for i, word in enumerate(self.vocabulary) if word in self._vectors]
        if places:
            vectors = np.stack([self._vectors[self.vocabulary[i]] for i in places])
            with torch.no_grad():
                if self.settings["network"] == "paper":  # other words start with the same spread, as in its code
                    cnn.words.weight[UNKNOWN:].normal_(float(vectors.mean()), float(vectors.std()))
                cnn.words.weight[torch.tensor(places) + UNKNOWN + 1] = torch.from_numpy(vectors).to(cnn.words.weight)
        return network

    def config(self) -> dict[str, Any]:
        """The settings, and what fit learned: vocabulary, hashes of n-grams, sizes."""
        return {
            "settings": dict(self.settings),
            "vocabulary": list(self.vocabulary),
            "ngrams": self._ngrams.tolist(),
            "texts": self._texts.tolist(),
            "characters": self._characters,
            "sizes": dict(self._sizes),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Restore the encoder from its config; a file of word vectors is not needed again."""
        encoder = cls(**config["settings"])
        encoder.vocabulary = list(config["vocabulary"])
        encoder._ngrams = np.array(config["ngrams"], dtype=np.uint32)
        encoder._texts = np.array(config.get("texts", []), dtype=np.int64)
        encoder._characters, encoder._sizes = config["characters"], {"classes": 0, **config["sizes"]}
        encoder._choose_recipe()
        return encoder

    def check(self) -> None:
        """Raise an error for words, n-grams and sizes that are inconsistent."""
        sizes, words = self._sizes, self.vocabulary
        if {*map(type, words)} - {str} or len(set(words)) != len(words):
            raise InputError(f"the vocabulary must be unique words; got {words!r:.100}")
        if self._ngrams.ndim != 1 or bool((self._ngrams[1:] <= self._ngrams[:-1]).any()):
            raise InputError("the hashes of n-grams must be a list in ascending order")
        linear = self.settings["network"] == "linear"
        if len(self._texts) != linear * len(self._ngrams) or (self._texts < 1).any():
            raise InputError("linear scores need how many texts have each n-gram, at least 1")
        needs_ngrams = int(self.settings["network"] != "paper")
        least = {"rows": 1, "length": 1, "ngrams": needs_ngrams, "vector": 0, "classes": int(linear)}
        for name, minimum in least.items():
            checks.positive_int(sizes[name], name, minimum=minimum)
        # The most n-grams that a text can have: per word, itself, a pair, and those of its characters.
        ngrams = min(self.settings["max_ngrams"], sizes["length"] * (2 + len(_SIZES) * (_LONGEST_WORD + 2)))
        if sizes["length"] > self.settings["max_length"] or sizes["ngrams"] > ngrams:
            raise InputError(
                f"texts must have at most {self.settings['max_length']} words and {ngrams} n-grams; got {sizes}"
            )
        if type(self._characters) is not bool:
            raise InputError(f"characters must be true or false; got {self._characters!r:.40}")

    def _require_fit(self) -> None:
        if self._sizes["rows"] == 0:
            raise DwacError("the encoder is not fitted; call fit first")


class _Grams(NamedTuple):
    """Distinct n-grams of texts, ordered by text; within a text words, then pairs, then runs of characters."""

    text: Ints
    hash: Hashes
    owner: Ints  # the position of the word at its first occurrence; for a pair, of the first word
    times: Ints  # how often the text has it
    kind: Ints  # 0: a word, 1: a pair, 2: a run of characters

    def at(self, places: NDArray[Any]) -> _Grams:
        """Some of them."""
        return _Grams(*(part[places] for part in self))


class _Corpus(NamedTuple):
    """Texts as numbers: token t of all texts is `words[ids[t]]`, at position `place[t]` of text `text[t]`, in order."""

    n: int
    words: list[str]
    ids: Ints
    text: Ints
    place: Ints

    @classmethod
    def read(cls, texts: Sequence[str], length: int | None) -> _Corpus:
        """Tokenise texts; read `length` words of each, or all if None."""
        index: dict[str, int] = {}
        ids: list[int] = []
        lengths = np.zeros(len(texts), dtype=np.int64)
        for row, text in enumerate(texts):
            tokens = tokenise(text)[:length]
            lengths[row] = len(tokens)
            ids += [index.setdefault(token, len(index)) for token in tokens]
        text_of = np.repeat(np.arange(len(texts)), lengths)
        place = np.arange(len(ids)) - np.repeat(lengths.cumsum() - lengths, lengths)
        return cls(len(texts), list(index), np.array(ids, dtype=np.int64), text_of, place)

    def cut(self, length: int) -> _Corpus:
        """The first `length` words of each text."""
        near = self.place < length
        return self._replace(ids=self.ids[near], text=self.text[near], place=self.place[near])

    def ngrams(self, characters: bool) -> Iterator[_Grams]:
        """The n-grams of chunks of texts. The characters of a word are hashed once, however often the word occurs."""
        word = np.array([word_hash(word) for word in self.words], dtype=np.uint32)
        parts = [character_hashes(word) if characters else [] for word in self.words]
        counts = np.array([len(part) for part in parts], dtype=np.int64)
        starts, flat = counts.cumsum() - counts, np.array([h for part in parts for h in part], dtype=np.uint32)
        for first in range(0, max(self.n, 1), CHUNK):
            low, high = np.searchsorted(self.text, (first, first + CHUNK))
            ids, text, place = self.ids[low:high], self.text[low:high], self.place[low:high]
            pair = np.flatnonzero(text[1:] == text[:-1])
            token = np.repeat(np.arange(len(ids)), counts[ids])  # the word of each n-gram
            within = np.arange(len(token)) - np.repeat(counts[ids].cumsum() - counts[ids], counts[ids])
            owner = np.concatenate([np.arange(len(ids)), pair, token])
            hashes = np.concatenate(
                [word[ids], pair_hashes(word[ids[pair]], word[ids[pair + 1]]), flat[starts[ids[token]] + within]]
            )
            kind = np.repeat([0, 1, 2], [len(ids), len(pair), len(token)])
            order = np.argsort(text[owner], kind="stable")
            owner, hashes, kind = owner[order], hashes[order], kind[order]
            key = (text[owner].astype(np.uint64) << np.uint64(32)) | hashes
            _, first_place, times = np.unique(key, return_index=True, return_counts=True)
            order = np.argsort(first_place)
            distinct = first_place[order]
            owner = owner[distinct]
            yield _Grams(text[owner], hashes[distinct], place[owner], times[order], kind[distinct])


def word_distances(one: str, many: Sequence[str]) -> NDArray[np.float64]:
    """1 - cosine of the sets of words, each word weighted by its inverse document frequency among the candidates.

    idf(word) = log((n + 1) / number of candidates with it): words that all of them share hardly count. Of many
    long texts, only the beginnings are read, of at least 300 characters.
    """
    length = max(_BEGINNING, _CHARACTERS // max(len(many), 1))
    words, sets = words_of(one[:length]), [words_of(text[:length]) for text in many]
    counts = Counter(word for own in sets for word in own)
    weight = {word: math.log((len(sets) + 1) / count) ** 2 for word, count in counts.items()}
    rarest = math.log(len(sets) + 1) ** 2  # the squared weight of a word that only the query has
    norm = math.fsum(weight.get(word, rarest) for word in words)  # exact: the order of words in a set is random
    distances = np.ones(len(sets))
    for i, own in enumerate(sets):
        shared = math.fsum([weight[word] for word in own & words])
        if shared > 0:
            distances[i] = 1 - shared / math.sqrt(norm * math.fsum([weight[word] for word in own]))
        elif not own and not words:  # only punctuation in both
            distances[i] = 0.0
    return np.maximum(distances, 0.0)


def texts_of(X: Any) -> list[str]:
    """X as a list of non-empty strings; an error names the row that is not one."""
    if isinstance(X, pd.DataFrame):
        if X.shape[1] != 1:
            raise ShapeError(f"a DataFrame of texts must have one column; got {X.shape[1]}: {list(X.columns)[:8]}")
        X = X.iloc[:, 0]
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1:
        X = X[:, 0]
    if not isinstance(X, list | tuple | pd.Series | np.ndarray) or (isinstance(X, np.ndarray) and X.ndim != 1):
        what = f"an array of shape {X.shape}" if isinstance(X, np.ndarray) else type(X).__name__
        raise InputError(f"X must be texts: a list, array or Series of str; got {what}")
    texts = X.tolist() if isinstance(X, pd.Series | np.ndarray) else list(X)
    faults = {row: fault for row, text in enumerate(texts) if (fault := _fault_of(text))}
    if faults:
        row, fault = next(iter(faults.items()))
        error = InputError if any(isinstance(text, str) for text in texts) else KindError
        rows = {row: f"the text {fault}" for row, fault in faults.items()}
        raise error(f"every text must be a str with at least one word; row {row} {fault}; drop or repair it", rows=rows)
    return texts


def is_empty(text: Any) -> bool:
    """Whether a text is missing, empty or blank."""
    return not text or text.isspace() if isinstance(text, str) else is_missing(text)


def is_missing(value: Any) -> bool:
    """Whether a value is None or NaN."""
    return value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value))


def _fault_of(text: Any) -> str:
    """What is wrong with a text; "" if nothing is."""
    if not isinstance(text, str):
        return "is missing" if is_empty(text) else f"is {type(text).__name__} {str(text)[:40]!r}"
    if is_empty(text):
        return "is blank" if text else "is empty"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "contains half of a surrogate pair, so its bytes were decoded wrongly"
    return ""


def _high_quantile(counts: Ints, limit: int) -> int:
    """A high quantile of counts, at least 1 and at most the limit."""
    return int(np.clip(np.ceil(np.quantile(counts, _HIGH)), 1, limit))
