import numpy as np
import pytest

from paddle_nezha.checkpoint import parameter_shapes
from paddle_nezha.config import NeZhaConfig


@pytest.fixture
def rng():
    return np.random.default_rng(1909_00204)


@pytest.fixture
def tiny():
    """A config whose sizes all differ, so that no two axes can be confused by accident."""
    return NeZhaConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=37,
        max_relative_position=5,
        max_position_embeddings=41,
        type_vocab_size=3,
        num_labels=6,
    )


@pytest.fixture
def weights(rng):
    """Builds a whole checkpoint of random values, its decoder tied: (config, head) -> arrays by our names."""

    def build(config, head):
        arrays = {
            name: rng.standard_normal(shape, dtype=np.float32) for name, shape in parameter_shapes(config, head).items()
        }
        if "cls.predictions.decoder_weight" in arrays:
            arrays["cls.predictions.decoder_weight"] = arrays["nezha.embeddings.word_embeddings.weight"]
        return arrays

    return build
