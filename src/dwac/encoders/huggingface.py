"""Any Hugging Face text encoder as a backbone: by name, folder or package; nothing is downloaded unless requested.

encoder = HuggingFaceEncoder("folder/with/model").fit(X)      # X: one text per example
input_ids, attention_mask = encoder.transform(X)              # int64 (n, length) each
features = encoder.network()(input_ids, attention_mask)       # (n, hidden size), or (n, 1, …) with a head
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from dwac import _checks as checks
from dwac.encoders import pretrained
from dwac.encoders.base import Recipe
from dwac.encoders.hf_tokenizer import MOST_TOKENS, encode_texts, restore_tokenizer, tokenise_texts
from dwac.encoders.pretrained import FEW, FeatureHead, Files
from dwac.encoders.text import TextEncoder, Texts, texts_of
from dwac.encoders.text_networks import weighted_sum
from dwac.errors import DwacError, InputError, ShapeError
from dwac.nn import Ensemble
from dwac.nn.batches import Inputs
from dwac.nn.ensemble import SharedBackbone
from dwac.reference.voters import pad_rows

# Models that transformers builds from the configuration alone: without another model, or code from the hub.
# fmt: off
MODEL_TYPES = (
    "albert", "bert", "big_bird", "camembert", "convbert", "data2vec-text", "deberta", "deberta-v2", "distilbert",
    "electra", "ernie", "eurobert", "longformer", "luke", "megatron-bert", "mobilebert", "modernbert", "mpnet",
    "nomic_bert", "nystromformer", "rembert", "roberta", "roberta-prelayernorm", "roformer", "squeezebert",
    "xlm-roberta", "xlm-roberta-xl", "xmod",
)
# fmt: on
_NGRAMS: dict[str, Any] = {"max_length": 800, "max_ngrams": 1200, "max_features": 2**18}  # of the n-grams
_POOLINGS = ("mean", "first")
_TOGETHER = 4  # texts per batch on a CPU: short ones take a third of the time
_MOST = {
    "layers": 256,
    "groups": 256,
    "n_iter": 64,
    "window": MOST_TOKENS,
    "block_size": MOST_TOKENS,
}  # limits of repeated parts


class HuggingFaceEncoder(Texts):
    """A pretrained encoder such as BERT, with its own tokeniser: fine-tuned, or frozen under a small network.

    A frozen encoder reads each training text once, and the small network is trained in seconds, without a GPU. In
    fine-tuning, lower layers learn more slowly than upper ones, and all more slowly than new layers.

    Once fitted, its `config` holds the architecture and the whole tokeniser, so that a saved model needs neither the
    hub nor the folder. Weights are read only from safetensors files, and code that comes with a model is never run.

    Args:
        name_or_folder: a folder with the model's files, an installed package that has such a folder, or a model's name
            on the Hugging Face hub.
        pooling: "mean" of the tokens' last hidden states, or that of the "first" token; "auto": as
            sentence-transformers does, if the model has its files, else the mean.
        max_length: how many tokens of a text are read, from its start; None: as sentence-transformers does, else 256.
        trained_layers: how many of the upper layers are fine-tuned, or "all"; 0: none; "auto": all on a machine with a
            GPU if there are 2,000 texts or more, else none.
        ngrams: whether networks over words and n-grams (`TextEncoder`) vote too: a pretrained model knows the
            language, n-grams know the names, codes and turns of phrase of these texts.
        local_files_only: False allows downloading the model.

    >>> HuggingFaceEncoder("bert-base-uncased", trained_layers=2).settings["trained_layers"]
    2
    """

    kind = "huggingface"

    def __init__(
        self,
        name_or_folder: str | Path,
        *,
        pooling: str = "auto",
        max_length: int | None = None,
        trained_layers: int | str = "auto",
        ngrams: bool | str = "auto",
        local_files_only: bool = True,
    ) -> None:
        if pooling not in ("auto", *_POOLINGS):
            raise InputError(f"unknown pooling {pooling!r}; choose 'auto', 'mean' or 'first'")
        if not (isinstance(ngrams, bool) or ngrams == "auto"):
            raise InputError(f"ngrams must be True, False or 'auto'; got {ngrams!r}")
        self.settings: dict[str, Any] = {
            "name_or_folder": str(name_or_folder),
            "pooling": pooling,
            "max_length": None if max_length is None else checks.positive_int(max_length, "max_length", minimum=3),
            "trained_layers": pretrained.check_layers(trained_layers),
            "ngrams": ngrams,
            "local_files_only": bool(local_files_only),
        }
        self._model: dict[str, Any] | None = None  # the architecture, as transformers describes it
        self._chosen: dict[str, Any] = {}  # the pooling, and how many layers are trained
        self._tokenizer_json = ""
        self._tokenizer: Any = None
        self._beside: TextEncoder | None = None  # the encoder of words and n-grams
        self._pretrained = False  # whether networks start from the pretrained weights

    def __repr__(self) -> str:
        return f"HuggingFaceEncoder({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the model's configuration and tokeniser, and learn the length of texts."""
        texts = texts_of(X)
        if not texts:
            raise ShapeError("at least 1 text is required; got 0")
        config = self._files.load("AutoConfig")
        if getattr(config, "is_encoder_decoder", False):
            raise InputError(f"{self._name} is an encoder-decoder ({config.model_type}); choose an encoder, e.g. BERT")
        pretrained.check_type(config.model_type, self._name, MODEL_TYPES)
        tokenizer = self._files.load("AutoTokenizer")
        if not getattr(tokenizer, "is_fast", False) or tokenizer.pad_token_id is None:
            raise InputError(
                f"{self._name} must have a fast tokeniser (tokenizer.json) with a padding token; choose another model"
            )
        pooling, max_tokens = _as_in_sentence_transformers(self._files.json)
        pooling = pooling if self.settings["pooling"] == "auto" else self.settings["pooling"]
        if pooling not in _POOLINGS:
            raise InputError(f"{self._name} is pooled by {pooling}, which is not supported; choose 'mean' or 'first'")
        limits = [self.settings["max_length"] or max_tokens or 256, tokenizer.model_max_length, MOST_TOKENS]
        if getattr(config, "max_position_embeddings", None):
            limits.append(config.max_position_embeddings - 2)  # RoBERTa's first two positions are not for tokens
        backend = tokenizer.backend_tokenizer
        backend.no_padding()
        backend.enable_truncation(max(min(limits), 3))
        lengths = [len(encoding.ids) for encoding in encode_texts(backend, texts)]
        length = int(np.ceil(np.quantile(lengths, 0.999)))
        backend.enable_truncation(length)
        backend.enable_padding(length=length, pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token)
        self._model = pretrained.strip_config(json.loads(config.to_json_string(use_diff=False)))
        trained = pretrained.choose_layers(self.settings["trained_layers"], len(texts))
        self._chosen = {"pooling": pooling, "trained_layers": trained}
        ngrams = self.settings["ngrams"]
        self._beside = None
        if ngrams is True or (ngrams == "auto" and len(texts) >= FEW):
            self._beside = TextEncoder(**_NGRAMS).fit(texts, y)
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            self._chosen["ngram_networks"] = self._beside.recipe.networks_on(device)
        self._tokenizer_json, self._pretrained = backend.to_str(), True
        # An error now rather than when a saved model is loaded.
        self._tokenizer = restore_tokenizer(self._tokenizer_json, self._n_words)
        return self

    def transform(self, X: Any) -> Inputs:
        """input_ids and attention_mask, (n, length) int64 each; then those of `TextEncoder`, if n-grams are used."""
        self._require_fit()
        if self._tokenizer is None:
            self._tokenizer = restore_tokenizer(self._tokenizer_json, self._n_words)
        try:
            tokens = tokenise_texts(self._tokenizer, texts_of(X), self._n_words, self._tokenizer_json)
        except InputError:
            self._tokenizer = None  # a panic may have left it broken
            raise
        return tokens if self._beside is None else (*tokens, *self._beside.transform(X))

    def check(self) -> None:
        """Raise an error for a model that needs far more time or memory than its weights, or a broken tokeniser."""
        pretrained.check_numbers(self._require_fit(), _MOST)
        if self._beside is not None:
            self._beside.check()
        self.transform(["a"])

    @property
    def recipe(self) -> Recipe:  # type: ignore[override]
        """Settings for fine-tuning, or for small networks over frozen features; those of `TextEncoder` for n-grams."""
        fixed = self._chosen.get("trained_layers", "all") == 0
        recipe = pretrained.FIXED if fixed else pretrained.FINE_TUNED
        if self._beside is None:
            return recipe
        words = self._beside.recipe
        recipe = replace(recipe, beta2=words.beta2, threads=words.threads)
        return replace(recipe, epochs=words.epochs, batch_size=words.batch_size) if fixed else recipe

    def network(self) -> nn.Module:
        """The pretrained model; or, if restored from a config, a new one of the same architecture."""
        return self._new_pooled_model() if self._beside is None and not self._frozen else self.ensemble(1)

    def ensemble(self, size: int) -> Ensemble:
        """Several small networks over one pretrained model, and networks over n-grams."""
        pooled = self._new_pooled_model()
        heads = [FeatureHead(pooled.width) if self._frozen or size > 1 else nn.Identity() for _ in range(size)]
        if self._beside is None:
            return SharedBackbone(pooled, heads, fixed=self._frozen)
        beside = [self._beside.member() for _ in range(self.n_beside)]
        rate = self._beside.recipe.learning_rate / self.recipe.learning_rate
        return SharedBackbone(pooled, heads, fixed=self._frozen, beside=beside, n_inputs=2, rate=rate)

    @property
    def n_beside(self) -> int:  # type: ignore[override]
        """How many networks over n-grams vote too."""
        return int(self._chosen.get("ngram_networks", 0))

    @property
    def _frozen(self) -> bool:
        self._require_fit()
        return bool(self._chosen["trained_layers"] == 0)

    def _new_pooled_model(self) -> PooledModel:
        model_config = self._require_fit()
        if self._pretrained:
            model = self._files.load("AutoModel", use_safetensors=True)
        else:
            model = pretrained.new_model(model_config)
        return PooledModel(model.float(), self._chosen["pooling"], self._chosen["trained_layers"])

    def config(self) -> dict[str, Any]:
        """The settings; once fitted, also the model's architecture and its tokeniser."""
        return {
            "settings": dict(self.settings),
            "chosen": dict(self._chosen),
            "model": self._model,
            "tokenizer": self._tokenizer_json,
            "beside": None if self._beside is None else self._beside.config(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Restore the encoder from its config; its networks start at random and then get the saved weights.

        The config may come from anywhere: entries that would make transformers download are refused or dropped.
        """
        encoder = cls(**config["settings"])
        if config["model"] is not None:
            pretrained.check_type(config["model"].get("model_type"), "the saved model", MODEL_TYPES)
            encoder._model = pretrained.strip_config(config["model"])
        encoder._tokenizer_json = config["tokenizer"]
        encoder._chosen = _check_choices(config.get("chosen", {"pooling": config["settings"].get("pooling", "mean")}))
        if (beside := config.get("beside")) is not None:
            encoder._beside = TextEncoder.from_config(beside)
            checks.positive_int(encoder._chosen.get("ngram_networks"), "ngram_networks")  # type: ignore[arg-type]
        return encoder

    @property
    def _name(self) -> str:
        return str(self.settings["name_or_folder"])

    @property
    def _n_words(self) -> int:
        """The size of the network's vocabulary."""
        return checks.positive_int(self._require_fit().get("vocab_size"), "vocab_size")  # type: ignore[arg-type]

    @property
    def _files(self) -> Files:
        return Files(self._name, self.settings["local_files_only"])

    def _require_fit(self) -> dict[str, Any]:
        if self._model is None:
            raise DwacError("the encoder is not fitted; call fit first")
        return self._model


class PooledModel(nn.Module):
    """input_ids, attention_mask (n, length) → (n, hidden size): a model's last hidden states, pooled over tokens.

    trained_layers: how many of the upper layers learn, or "all".
    """

    rows_at_once: ClassVar = {"cpu": 256, "cuda": 32}

    def __init__(self, model: nn.Module, pooling: str, trained_layers: int | str = "all") -> None:
        super().__init__()
        self.model, self.pooling = model, pooling
        pooler = getattr(model, "pooler", None)
        if isinstance(pooler, nn.Module):
            pooler.requires_grad_(False)  # unused: its weights would get no gradient
        self.rates = pretrained.freeze_layers(self, trained_layers)

    @property
    def width(self) -> int:
        """The number of features it returns."""
        config: Any = self.model.config
        return int(config.hidden_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The mean over all tokens except padding, or the state of the first token."""
        if self.training or input_ids.is_cuda or len(input_ids) == 0:
            return self._pool(input_ids, attention_mask)
        return self._pool_by_length(input_ids, attention_mask)

    def _pool_by_length(self, ids: Tensor, mask: Tensor) -> Tensor:
        """On a CPU, batches of texts of equal length, without padding: always four, so that each rounds as if alone."""
        texts, places = torch.unique(torch.stack([ids, mask], dim=1), dim=0, return_inverse=True)
        ids, mask = texts.unbind(dim=1)
        lengths = (mask * torch.arange(1, mask.shape[1] + 1)).amax(dim=1)
        pooled = torch.empty(len(ids), self.width)
        for length in lengths.unique().clamp_min(1).tolist():
            for rows in torch.nonzero(lengths.clamp_min(1) == length)[:, 0].split(_TOGETHER):
                parts = (pad_rows(part[rows, :length], _TOGETHER) for part in (ids, mask))
                pooled[rows] = self._pool(*parts)[: len(rows)]
        return pooled[places]

    def _pool(self, ids: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.pooling == "first":
            return states[:, 0]
        share = mask / mask.sum(dim=1, keepdim=True).clamp_min(1)
        return weighted_sum(share, states)


def _as_in_sentence_transformers(file: Callable[[str], Any]) -> tuple[str, int | None]:
    """How sentence-transformers pools the tokens of a model, and how many it reads; by default the mean, and None."""
    modules, read = file("modules.json"), file("sentence_bert_config.json")
    length = read.get("max_seq_length") if isinstance(read, dict) else None
    length = length if isinstance(length, int) and length >= 3 else None
    places = [step["path"] for step in modules or () if str(step.get("type")).endswith(".Pooling")]
    pooling = (file(f"{places[0]}/config.json") if places else None) or {}
    given = (name for name, used in pooling.items() if used is True)  # other keys too, such as include_prompt
    modes = [name.removeprefix("pooling_mode_") for name in given if name.startswith("pooling_mode_")]
    mode = " and ".join(modes) or pooling.get("pooling_mode", "mean")
    return {"mean_tokens": "mean", "cls_token": "first", "cls": "first"}.get(mode, mode), length


def _check_choices(chosen: Any) -> dict[str, Any]:
    """The stored choices of an encoder; an error if they are invalid."""
    choices = {"trained_layers": "all", **chosen} if chosen else {}
    if choices and choices.get("pooling") not in _POOLINGS:
        raise InputError(f"the saved model must be pooled by 'mean' or 'first'; got {chosen!r:.100}")
    if choices:
        pretrained.check_layers(choices["trained_layers"], chosen=True)
    return choices
