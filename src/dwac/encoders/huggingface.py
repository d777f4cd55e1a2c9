"""Any Hugging Face text encoder as a backbone, by name or local folder; nothing is downloaded unless requested.

encoder = HuggingFaceEncoder("folder/with/model").fit(X)      # X: one text per example
input_ids, attention_mask = encoder.transform(X)              # int64 (n, length) each
features = encoder.network()(input_ids, attention_mask)       # (n, hidden size)
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor, nn

from dwac import _checks as checks
from dwac.encoders.base import Encoder, Recipe
from dwac.encoders.hf_tokenizer import MOST_TOKENS, encoded, numbers_of, required, restored, tokens_of
from dwac.encoders.text import text_distances, texts_of
from dwac.encoders.text_networks import weighted_sum
from dwac.errors import DwacError, InputError, ShapeError
from dwac.nn.batches import Inputs

# Models that transformers builds from the configuration alone: without another model, or code from the hub.
# fmt: off
MODEL_TYPES = (
    "albert", "bert", "big_bird", "camembert", "convbert", "data2vec-text", "deberta", "deberta-v2", "distilbert",
    "electra", "ernie", "eurobert", "longformer", "luke", "megatron-bert", "mobilebert", "modernbert", "mpnet",
    "nomic_bert", "nystromformer", "rembert", "roberta", "roberta-prelayernorm", "roformer", "squeezebert",
    "xlm-roberta", "xlm-roberta-xl", "xmod",
)
# fmt: on
# Dropped from a configuration: a user's path, foreign code, parts fetched from the hub, and labels.
_DROPPED = re.compile(
    r"_.*|.*implementation.*|.*backbone.*|auto_map|quantization_config|transformers_version|num_labels|id2label|label2id"
)
_LARGEST = 2**24  # limit of any number in a configuration
_MOST = {
    "layers": 256,
    "groups": 256,
    "n_iter": 64,
    "window": MOST_TOKENS,
    "block_size": MOST_TOKENS,
}  # limits of what is repeated


class HuggingFaceEncoder(Encoder):
    """A pretrained encoder such as BERT, with its own tokeniser; all of its weights are fine-tuned.

    Once fitted, its `config` holds the architecture and the whole tokeniser, so that a saved model needs neither the
    hub nor the folder. Weights are read only from safetensors files, and code that comes with a model is never run.

    Args:
        name_or_folder: a model's name on the Hugging Face hub, or a folder with its files.
        pooling: "mean" of the tokens' last hidden states, or that of the "first" token.
        max_length: only the first so many tokens of a text are read.
        local_files_only: False allows downloading the model.
    """

    kind = "huggingface"
    recipe = Recipe(epochs=5, batch_size=64, learning_rate=5e-5, weight_decay=1e-2, patience=2, mixed_precision=True)

    def __init__(
        self,
        name_or_folder: str | Path,
        *,
        pooling: str = "mean",
        max_length: int = 256,
        local_files_only: bool = True,
    ) -> None:
        if pooling not in ("mean", "first"):
            raise InputError(f"unknown pooling {pooling!r}; choose 'mean' or 'first'")
        self.settings: dict[str, Any] = {
            "name_or_folder": str(name_or_folder),
            "pooling": pooling,
            "max_length": checks.positive_int(max_length, "max_length", minimum=3),
            "local_files_only": bool(local_files_only),
        }
        self._model: dict[str, Any] | None = None  # the architecture, as transformers describes it
        self._tokenizer_json = ""
        self._tokenizer: Any = None
        self._pretrained = False  # whether networks start from the pretrained weights

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the model's configuration and tokeniser, and learn the length of texts."""
        del y
        texts = texts_of(X)
        if not texts:
            raise ShapeError("at least 1 text is required; got 0")
        described = self._load("AutoConfig")
        if getattr(described, "is_encoder_decoder", False):
            raise InputError(
                f"{self._name} is an encoder-decoder ({described.model_type}); choose an encoder, e.g. BERT"
            )
        _require_type(described.model_type, self._name)
        tokenizer = self._load("AutoTokenizer")
        if not getattr(tokenizer, "is_fast", False) or tokenizer.pad_token_id is None:
            raise InputError(
                f"{self._name} must have a fast tokeniser (tokenizer.json) with a padding token; choose another model"
            )
        limits = [self.settings["max_length"], tokenizer.model_max_length, MOST_TOKENS]
        if getattr(described, "max_position_embeddings", None):
            limits.append(described.max_position_embeddings - 2)  # RoBERTa's first two positions are not for tokens
        backend = tokenizer.backend_tokenizer
        backend.no_padding()
        backend.enable_truncation(max(min(limits), 3))
        lengths = [len(encoding.ids) for encoding in encoded(backend, texts)]
        length = int(np.ceil(np.quantile(lengths, 0.999)))
        backend.enable_truncation(length)
        backend.enable_padding(length=length, pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token)
        described = json.loads(described.to_json_string(use_diff=False))
        self._model = _plain(described)
        self._tokenizer_json, self._pretrained = backend.to_str(), True
        self._tokenizer = restored(
            self._tokenizer_json, self._n_words
        )  # fails now rather than when a saved model is loaded
        return self

    def transform(self, X: Any) -> Inputs:
        """input_ids and attention_mask, (n, length) int64 each."""
        self._require_fit()
        if self._tokenizer is None:
            self._tokenizer = restored(self._tokenizer_json, self._n_words)
        try:
            return tokens_of(self._tokenizer, texts_of(X), self._n_words, self._tokenizer_json)
        except InputError:
            self._tokenizer = None  # a panic may have left it broken
            raise

    def check(self) -> None:
        """Raise an error for a model that needs far more time or memory than its weights, or a broken tokeniser."""
        for name, value in numbers_of(self._require_fit()):
            most = next((most for ending, most in _MOST.items() if name.endswith(ending)), _LARGEST)
            if abs(value) > most:
                raise InputError(f"the saved model's {name} must be at most {most:,}; got {value!r:.40}")
        self.transform(["a"])

    def network(self) -> nn.Module:
        """The pretrained model; or, if restored from a config, a new one of the same architecture."""
        model_config = self._require_fit()
        if self._pretrained:
            model = self._load("AutoModel", use_safetensors=True)
        else:
            transformers = required("transformers")
            options = {name: value for name, value in model_config.items() if name != "model_type"}
            described = transformers.AutoConfig.for_model(model_config["model_type"], **options)
            kind = transformers.MODEL_MAPPING[type(described)]
            attention = (
                "sdpa" if getattr(kind, "_supports_sdpa", False) else "eager"
            )  # other implementations may be downloaded
            model = transformers.AutoModel.from_config(
                described, trust_remote_code=False, attn_implementation=attention
            )
        return PooledModel(model.float(), self.settings["pooling"])

    def config(self) -> dict[str, Any]:
        """The settings; once fitted, also the model's architecture and its tokeniser."""
        return {"settings": dict(self.settings), "model": self._model, "tokenizer": self._tokenizer_json}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Restore the encoder from its config; its networks start at random and then get the saved weights.

        The config may come from anywhere: whatever would make transformers download something is refused or dropped.
        """
        encoder = cls(**config["settings"])
        if config["model"] is not None:
            _require_type(config["model"].get("model_type"), "the saved model")
            encoder._model = _plain(config["model"])
        encoder._tokenizer_json = config["tokenizer"]
        return encoder

    def records(self, X: Any) -> pd.DataFrame:
        """The texts, in one column "text"."""
        return pd.DataFrame({"text": pd.Series(texts_of(X), dtype="str")})

    def input_distances(self, X_one: Any, X_many: Any) -> NDArray[np.float64]:
        """(n,): 1 - cosine of the sets of words, rare words weighing more; see `Encoder.input_distances`."""
        return text_distances(X_one, X_many)

    @property
    def _name(self) -> str:
        return str(self.settings["name_or_folder"])

    @property
    def _n_words(self) -> int:
        """The size of the network's vocabulary."""
        return checks.positive_int(self._require_fit().get("vocab_size"), "vocab_size")  # type: ignore[arg-type]

    def _load(self, what: str, **options: Any) -> Any:
        transformers = required("transformers")
        local = self.settings["local_files_only"]
        try:
            return getattr(transformers, what).from_pretrained(
                self._name, local_files_only=local, trust_remote_code=False, **options
            )
        except (OSError, ValueError) as error:
            hint = "; give a folder, or set local_files_only=False to download it" if local else ""
            raise InputError(f"{self._name} must be a readable model; {what} failed: {error}{hint}") from None

    def _require_fit(self) -> dict[str, Any]:
        if self._model is None:
            raise DwacError("the encoder is not fitted; call fit first")
        return self._model


class PooledModel(nn.Module):
    """input_ids, attention_mask (n, length) → (n, hidden size): a model's last hidden states, pooled over tokens."""

    rows_at_once: ClassVar = {"cpu": 1, "cuda": 32}

    def __init__(self, model: nn.Module, pooling: str) -> None:
        super().__init__()
        self.model, self.pooling = model, pooling
        pooler = getattr(model, "pooler", None)
        if isinstance(pooler, nn.Module):
            pooler.requires_grad_(False)  # unused: its weights would get no gradient

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The mean over all tokens except padding, or the state of the first token."""
        states: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.pooling == "first":
            return states[:, 0]
        share = attention_mask / attention_mask.sum(dim=1, keepdim=True).clamp_min(1)
        return weighted_sum(share, states)


def _require_type(model_type: Any, name: str) -> None:
    if model_type not in MODEL_TYPES:
        raise InputError(f"{name} is of type {model_type!r}; choose a text encoder: {', '.join(MODEL_TYPES)}")


def _plain(described: Any) -> Any:
    """A configuration without entries that are private or refer elsewhere, at every depth."""
    if isinstance(described, list):
        return [_plain(value) for value in described]
    if not isinstance(described, dict):
        return described
    return {name: _plain(value) for name, value in described.items() if not _DROPPED.fullmatch(name)}
