"""Networks for texts: scores linear in hashed n-grams; the paper's attention CNN, alone or next to a bag of n-grams."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from dwac.errors import InputError, NonFiniteError
from dwac.nn.tiles import Frozen, join_tiles, multiply_tiles, split_tiles

Vector = NDArray[np.float32]

PADDING = 0  # index of padding
UNKNOWN = 1  # index of words outside the vocabulary
_ROWS = 4096  # texts whose scores are computed at once


class AttentionCNN(nn.Module):
    """words (n, length) → (n, filters): word vectors, one convolution, and an attention-weighted sum.

        v_t = tanh(conv(e)_t),   a = softmax_t(u · v_t),   f = Σ_t a_t v_t

    The convolution reads `window` words around word t; padding gets no weight. As in the paper: vectors of 300,
    dropout 0.5, window 5, 200 filters.

    Args:
        n_words: size of the vocabulary, padding and unknown included.
        size: size of a word vector.
        filters: number of filters of the convolution.
        window: number of words the convolution reads; odd, so that word t is in the middle for v_t.
        dropout: dropout rate of the word vectors.
    """

    rows_at_once: ClassVar = {"cpu": 1, "cuda": 256}

    def __init__(
        self, n_words: int, size: int = 300, filters: int = 200, window: int = 5, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(n_words, size, padding_idx=PADDING)
        nn.init.uniform_(self.words.weight, -0.25, 0.25)
        with torch.no_grad():
            self.words.weight[PADDING] = 0
        self.dropout = nn.Dropout(dropout)
        self.convolution = nn.Conv1d(size, filters, window, padding=window // 2)
        self.relevance = nn.Linear(filters, 1, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        """Features (n, filters)."""
        (words,) = trim_padding(words)
        values, weights = self.attend(words, words != PADDING)
        return weighted_sum(weights, values)

    def attend(self, words: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """v (n, length, filters) and a (n, length), reading only the words that are `visible` (n, length)."""
        vectors = self.dropout(self.words(words) * visible[:, :, None])
        values = torch.tanh(self.convolution(vectors.transpose(1, 2))).transpose(1, 2)
        relevance = self.relevance(values).squeeze(2).float()
        return values, torch.softmax(relevance.masked_fill(~visible, torch.finfo(relevance.dtype).min), dim=1)

    @torch.no_grad()
    def attention(self, words: Tensor) -> Tensor:
        """a (n, length): the share of each word in f; rows sum to 1, padding has 0. As in evaluation mode."""
        training = self.dropout.training
        self.dropout.eval()
        try:
            return self.attend(words, words != PADDING)[1]
        finally:
            self.dropout.train(training)


class LinearNetwork(nn.Module):
    """ngrams (n, m), shares (n, m), strange (n, 1), shift (n, K) → (n, K): scores of the classes, linear in n-grams.

        f = Σ_g share_g W_g + b + shift

    W and b are the mean of linear classifiers, each fitted without one fold of the texts (`cross_fit_lines`). The shift
    turns the score of a training text into that of the classifier that left it out; for a new text it is 0. A text of
    unknown words has the score of an empty text, so novelty is measured by how strange its n-grams are.
    """

    n_compared_features = 1

    def __init__(self, n_ngrams: int, n_classes: int) -> None:
        super().__init__()
        self.n_features = n_classes
        self.weight = nn.Parameter(torch.zeros(n_ngrams, n_classes), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(n_classes), requires_grad=False)

    def forward(self, ngrams: Tensor, shares: Tensor, strange: Tensor, shift: Tensor) -> Tensor:
        """(n, K)."""
        del strange
        ngrams, shares = trim_padding(ngrams, shares)
        return F.embedding_bag(ngrams, self.weight, per_sample_weights=shares, mode="sum") + self.bias + shift

    def compared_features(self, ngrams: Tensor, shares: Tensor, strange: Tensor, shift: Tensor) -> Tensor:
        """(n, 1): how strange texts are; 0 for those that vote."""
        del ngrams, shares, shift
        return strange

    def freeze(self, weight: Tensor, bias: Tensor) -> Frozen:
        """h of texts: the sums of a text do not depend on the others, only the product is made in tiles."""
        last, start = weight.t().contiguous(), bias.clone()

        def embed(*inputs: Tensor) -> Tensor:
            return join_tiles(multiply_tiles(split_tiles(self(*inputs)), last, start), len(inputs[0]))

        return Frozen(embed, _ROWS)


class SubwordNetwork(nn.Module):
    """words, ngrams, owners, strange → (n, 128): an attention CNN with 64 filters next to a bag of n-grams.

        b = Σ_g e_g / √(number of n-grams),   f = [tanh(s (W b + c)), CNN(words)]

    The bag represents words by their parts, so it can read misspelt, compound and unseen words. In training, a share
    `hidden` of the words is hidden with all their n-grams: if n-grams were dropped one by one, enough of each word
    would remain to recognise it.

    Args:
        n_words: as for `AttentionCNN`.
        n_ngrams: rows of the table of n-grams, padding included.
        word_size: size of a word vector.
        hidden: share of words hidden in training.
    """

    # Evidence must saturate. Votes need compact classes: a title with one informative word and a title with three
    # should be embedded in the same place. Without the steep tanh the loss fits a sum of evidence to a point, as in
    # least squares, which cost one to two points of validation accuracy on Stack Overflow titles.
    STEEPNESS = 6.0

    n_compared_features = 1  # how strange a text is: see `LinearNetwork`
    rows_at_once: ClassVar = {"cpu": 1, "cuda": 256}

    def __init__(self, n_words: int, n_ngrams: int, *, word_size: int = 64, hidden: float = 0.5) -> None:
        super().__init__()
        self.hidden = hidden
        self.cnn = AttentionCNN(n_words, word_size, filters=64, window=3, dropout=0.2)
        self.ngrams = nn.EmbeddingBag(n_ngrams, 64, mode="sum", padding_idx=PADDING)
        nn.init.zeros_(self.ngrams.weight)  # n-grams that are not in training are not evidence
        self.mix = nn.Linear(64, 64)

    def forward(self, words: Tensor, ngrams: Tensor, owners: Tensor, strange: Tensor) -> Tensor:
        """Features (n, 128) of words (n, length), n-grams (n, m) and the positions of their words."""
        del strange
        (words,), (ngrams, owners) = trim_padding(words), trim_padding(ngrams, owners)
        visible = self.visible(words)
        values, weights = self.cnn.attend(words, visible)
        read = visible.gather(1, owners.long()) & (ngrams != PADDING)
        share = read / read.sum(dim=1, keepdim=True).clamp_min(1).sqrt()
        bag = self.ngrams(ngrams, per_sample_weights=share.to(self.ngrams.weight.dtype))
        return torch.cat([torch.tanh(self.STEEPNESS * self.mix(bag)), weighted_sum(weights, values)], dim=1)

    def compared_features(self, words: Tensor, ngrams: Tensor, owners: Tensor, strange: Tensor) -> Tensor:
        """(n, 1): how strange texts are; 0 for those that vote."""
        del words, ngrams, owners
        return strange

    @torch.no_grad()
    def start_from(self, evidence: Tensor) -> None:
        """Initialise the n-gram vectors from their evidence (n_ngrams, K), with one random direction per class.

        A rare n-gram gets few gradients, so it stays near its start: 0, or, as here, the evidence that a naive Bayes
        classifier would use. With more classes, more directions are mixed, and each counts less.
        """
        n_classes = evidence.shape[1]
        directions = torch.randn(n_classes, self.ngrams.embedding_dim) / n_classes**0.5
        self.ngrams.weight.copy_(3 / n_classes * evidence @ directions)

    def attention(self, words: Tensor, *_: Tensor) -> Tensor:
        """(n, length): the share of each word in the CNN's part of the features."""
        return self.cnn.attention(words)

    def visible(self, words: Tensor) -> Tensor:
        """Which words are read: all except padding; in training, a random part of them."""
        present = words != PADDING
        if not self.training or self.hidden == 0:
            return present
        visible = present & (torch.rand(words.shape, device=words.device) >= self.hidden)
        return visible | (present & ~visible.any(dim=1, keepdim=True))  # a text is never hidden entirely


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_t a_t v_t: weights (n, length) and values (n, length, d) give (n, d)."""
    return torch.bmm(weights.to(values.dtype)[:, None], values).squeeze(1)


def trim_padding(first: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Drop the last columns of (n, m) that are padding in every row of the first tensor; at least one column stays.

    Only on the CPU, where it saves half the work: reading the longest length back from a GPU would stall it.
    """
    if first.device.type != "cpu" or torch.compiler.is_compiling():
        return first, *others
    longest = int((first != PADDING).sum(dim=1).max()) if len(first) else 1
    return tuple(column[:, : max(longest, 1)] for column in (first, *others))


def read_vectors(path: str | Path, words: Collection[str], further: int = 0) -> dict[str, Vector]:
    """The vectors of some words, and of the first `further` words of the file, in file order.

    Each line of the file has a word and its numbers; an error names a bad line. A first line of two whole numbers, as
    fastText writes it, is skipped.
    """
    vectors: dict[str, Vector] = {}
    size = 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                line = line.rstrip()
                fields = line.count(b" ")
                if number == 1 and fields == 1 and all(part.isdigit() for part in line.split()):
                    further += 1  # this line is not a word
                    continue
                size = size or fields
                word = line.partition(b" ")[0].decode("utf-8", "replace")
                if fields == size > 0 and word not in words and number > further:  # most lines: skipped without parsing
                    continue
                values = _parse_numbers(line, size)
                if values is None:
                    raise InputError(
                        f"{path}, line {number} must be a word and {size or 'some'} numbers, separated by spaces; "
                        f"got {line[:60].decode('utf-8', 'replace')!r}"
                    )
                if not np.isfinite(values).all():
                    raise NonFiniteError(f"{path}, line {number}: the numbers of {word!r} must be finite")
                if fields == size:
                    vectors[word] = values
    except OSError as error:
        raise InputError(f"vectors must be a readable file; {path}: {error.strerror}") from None
    if not any(word in words for word in vectors):
        raise InputError(f"{path} has vectors for none of the {len(words)} training words; is it for their language?")
    return vectors


def _parse_numbers(line: bytes, size: int) -> Vector | None:
    """The last `size` fields of a line; None if it is not a word and that many numbers.

    A few words of GloVe 840B contain spaces, but a number before the last `size` fields is one too many.
    """
    parts = line.split(b" ")
    word, numbers = parts[: len(parts) - size], parts[len(parts) - size :]
    if size == 0 or not word or (len(word) > 1 and _is_number(word[-1])):
        return None
    try:
        return np.array(numbers).astype(np.float32)
    except ValueError:
        return None


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
