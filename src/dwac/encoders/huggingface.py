"""Any Hugging Face text encoder as a backbone, by name or local folder; nothing is fetched unless asked.

encoder = HuggingFaceEncoder("folder/with/model").fit(X)      # X: texts, one an example
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
from torch import Tensor, nn

from dwac import _checks as checks
from dwac.encoders.base import Encoder, Recipe
from dwac.encoders.hf_tokenizer import MOST_TOKENS, encoded, numbers_of, required, restored, tokens_of
from dwac.encoders.text import texts_of
from dwac.encoders.text_networks import weighted_sum
from dwac.errors import DwacError, InputError, ShapeError
from dwac.nn.batches import Inputs

# What transformers builds from a configuration alone: no further model, and no code or kernels from the hub.
# fmt: off
MODEL_TYPES = (
    "albert", "bert", "big_bird", "camembert", "convbert", "data2vec-text", "deberta", "deberta-v2", "distilbert",
    "electra", "ernie", "eurobert", "longformer", "luke", "megatron-bert", "mobilebert", "modernbert", "mpnet",
    "nomic_bert", "nystromformer", "rembert", "roberta", "roberta-prelayernorm", "roformer", "squeezebert",
    "xlm-roberta", "xlm-roberta-xl", "xmod",
)
# fmt: on
# Of a configuration: a user's path, others' code, parts fetched from the hub, and labels, of which an encoder has none.
_DROPPED = re.compile(
    r"_.*|.*implementation.*|.*backbone.*|auto_map|quantization_config|transformers_version|num_labels|id2label|label2id"
)
_LARGEST = 2**24  # any number of a configuration
_MOST = {
    "layers": 256,
    "groups": 256,
    "n_iter": 64,
    "window": MOST_TOKENS,
    "block_size": MOST_TOKENS,
}  # what is repeated


class HuggingFaceEncoder(Encoder):
    """A pretrained encoder such as BERT, with its own tokeniser; all of its weights are trained further.

    Once fitted, its `config` holds the architecture and the whole tokeniser, so that a saved model needs neither the
    hub nor the folder. Weights are read from safetensors files alone, and code that comes with a model is never run.

    Args:
        name_or_folder: a model's name on the Hugging Face hub, or a folder with its files.
        pooling: "mean" of the tokens' last hidden states, or the "first" token's.
        max_length: most tokens of a text that are read, from its beginning.
        local_files_only: False allows to download the model.
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
        self._pretrained = False  # whether networks start from the model's own weights

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the model's configuration and tokeniser, and learn how long texts are."""
        del y
        texts = texts_of(X)
        if not texts:
            raise ShapeError("0 texts were given while at least 1 is required")
        described = self._load("AutoConfig")
        if getattr(described, "is_encoder_decoder", False):
            raise InputError(
                f"{self._name} is an encoder-decoder ({described.model_type}); choose an encoder, e.g. BERT"
            )
        _require_type(described.model_type, self._name)
        tokenizer = self._load("AutoTokenizer")
        if not getattr(tokenizer, "is_fast", False) or tokenizer.pad_token_id is None:
            raise InputError(f"{self._name} needs a fast tokeniser (tokenizer.json) with a padding token")
        limits = [self.settings["max_length"], tokenizer.model_max_length, MOST_TOKENS]
        if getattr(described, "max_position_embeddings", None):
            limits.append(described.max_position_embeddings - 2)  # RoBERTa's first two places are not for tokens
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
        self._tokenizer = restored(self._tokenizer_json, self._n_words)  # what could not be loaded is not fitted
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
        """Refuse a model that takes more steps or memory than its weights do, and a tokeniser that does not work."""
        for name, value in numbers_of(self._require_fit()):
            most = next((most for ending, most in _MOST.items() if name.endswith(ending)), _LARGEST)
            if abs(value) > most:
                raise InputError(f"the saved model's {name} must be at most {most:,}; it is {value!r:.40}")
        self.transform(["a"])

    def network(self) -> nn.Module:
        """The pretrained model, or one of the same architecture where this encoder was restored from a config."""
        model_config = self._require_fit()
        if self._pretrained:
            model = self._load("AutoModel", use_safetensors=True)
        else:
            transformers = required("transformers")
            options = {name: value for name, value in model_config.items() if name != "model_type"}
            described = transformers.AutoConfig.for_model(model_config["model_type"], **options)
            kind = transformers.MODEL_MAPPING[type(described)]
            attention = "sdpa" if getattr(kind, "_supports_sdpa", False) else "eager"  # others may be fetched
            model = transformers.AutoModel.from_config(
                described, trust_remote_code=False, attn_implementation=attention
            )
        return PooledModel(model.float(), self.settings["pooling"])

    def config(self) -> dict[str, Any]:
        """The settings; once fitted, the model's architecture and its tokeniser."""
        return {"settings": dict(self.settings), "model": self._model, "tokenizer": self._tokenizer_json}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The encoder that `config` describes; its networks start at random, for saved weights to be put in.

        The config may come from anywhere: whatever would have transformers fetch something is refused or dropped.
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

    @property
    def _name(self) -> str:
        return str(self.settings["name_or_folder"])

    @property
    def _n_words(self) -> int:
        """How many tokens the network knows."""
        return checks.positive_int(self._require_fit().get("vocab_size"), "vocab_size")  # type: ignore[arg-type]

    def _load(self, what: str, **options: Any) -> Any:
        transformers = required("transformers")
        local = self.settings["local_files_only"]
        try:
            return getattr(transformers, what).from_pretrained(
                self._name, local_files_only=local, trust_remote_code=False, **options
            )
        except (OSError, ValueError) as error:
            hint = "; give a folder, or local_files_only=False to download it" if local else ""
            raise InputError(f"{self._name} is no model that could be read ({what}): {error}{hint}") from None

    def _require_fit(self) -> dict[str, Any]:
        if self._model is None:
            raise DwacError("the encoder has seen no text yet: call fit first")
        return self._model


class PooledModel(nn.Module):
    """input_ids, attention_mask (n, length) → (n, hidden size): a model's last hidden states, pooled over tokens."""

    rows_at_once: ClassVar = {"cpu": 1, "cuda": 32}

    def __init__(self, model: nn.Module, pooling: str) -> None:
        super().__init__()
        self.model, self.pooling = model, pooling
        pooler = getattr(model, "pooler", None)
        if isinstance(pooler, nn.Module):
            pooler.requires_grad_(False)  # not used: its weights would get no gradient

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The mean over the tokens that are there, or the first token's state."""
        states: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.pooling == "first":
            return states[:, 0]
        share = attention_mask / attention_mask.sum(dim=1, keepdim=True).clamp_min(1)
        return weighted_sum(share, states)


def _require_type(model_type: Any, name: str) -> None:
    if model_type not in MODEL_TYPES:
        raise InputError(f"{name} is of type {model_type!r}; choose a text encoder: {', '.join(MODEL_TYPES)}")


def _plain(described: Any) -> Any:
    """A configuration without what is private, or leads elsewhere; at every depth."""
    if isinstance(described, list):
        return [_plain(value) for value in described]
    if not isinstance(described, dict):
        return described
    return {name: _plain(value) for name, value in described.items() if not _DROPPED.fullmatch(name)}
