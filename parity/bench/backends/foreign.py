"""NeZha as others publish it: PaddleNLP's and transformers' own classes, opened by `parity.outside`."""

import os
from importlib import metadata
from typing import Any, Callable

from paddle_nezha.config import NeZhaConfig
from parity.bench.backends import Unavailable
from parity.bench.backends.inputs import ids_and_mask, state_gradient
from parity.bench.backends.ours import config_of
from parity.bench.backends.paddle_base import PaddleEngine
from parity.bench.plan import FORWARD, Case, Engine, Setting


def _untrained(name: str, config: NeZhaConfig, dropout: float) -> Any:
    from parity import outside

    try:
        return outside.untrained(name, config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    except outside.OutsideUnavailable as error:
        raise Unavailable(str(error)) from error


def _published_length(config: NeZhaConfig) -> NeZhaConfig:
    """Both gather a table for this many tokens in every layer: no more than they were published with."""
    config.max_position_embeddings = min(512, config.max_position_embeddings)
    return config


class PaddleNLP(PaddleEngine):
    def __init__(self, engine: Engine, setting: Setting) -> None:
        super().__init__(engine, setting)
        self.facts["paddlenlp"] = metadata.version("paddlenlp")
        self.build()  # where it does not fit its surroundings, it says so now

    def make(self) -> Any:
        return _untrained("paddlenlp", _published_length(config_of(self.setting, True)), self.setting.dropout)

    def encode(self, ids: Any, mask: Any, padded: bool) -> Any:
        return self.model(ids, attention_mask=mask)[0]


class Transformers:
    """In PyTorch."""

    def __init__(self, engine: Engine, setting: Setting) -> None:
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        torch.manual_seed(20)
        self.torch, self.setting = torch, setting
        self.facts = {"torch": torch.__version__, "transformers": metadata.version("transformers")}
        self.model: Any = None
        self.build()

    def build(self) -> None:
        if self.model is None:
            config = _published_length(config_of(self.setting, True))
            self.model = _untrained("transformers", config, self.setting.dropout)

    def forget(self) -> None:
        pass

    def call(self, task: str, case: Case) -> "Callable[[], Any]":
        torch = self.torch
        ids, mask = map(torch.from_numpy, ids_and_mask(case, self.setting))

        def forward() -> None:
            self.model.eval()
            with torch.inference_mode():
                self.model(ids, attention_mask=mask)

        if task == FORWARD:
            return forward
        gradient = torch.from_numpy(state_gradient(case, self.setting))

        def training() -> None:
            self.model.train()
            self.model(ids, attention_mask=mask)[0].backward(gradient)
            self.model.zero_grad(set_to_none=True)

        return training
