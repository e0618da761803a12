"""What every test shares: fixed seeds, and the tiny, oddly sized model on which swapped axes cannot hide."""

import os
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise

import numpy as np
import pytest

from paddle_nezha.config import NeZhaConfig

TINY = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_relative_position": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
}


@pytest.fixture(scope="session", autouse=True)
def operator_library():
    """The attention operator, compiled at most once for all tests: many of them have caches of their own."""
    from paddle_nezha.operator import building

    if building.SWITCH not in os.environ:
        os.environ[building.SWITCH] = str(building.library())
    yield os.environ[building.SWITCH]
    os.environ.pop(building.SWITCH, None)


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.fixture
def tiny():
    """A factory of tiny configs: ``tiny(num_labels=3)``."""
    return lambda **changes: NeZhaConfig(**{**TINY, **changes})


@pytest.fixture
def seeded():
    """Paddle's own randomness, fixed; what a test changes of Paddle's global state is put back."""
    from paddle_nezha._paddle import paddle

    dtype = paddle.get_default_dtype()
    paddle.seed(20)
    yield
    paddle.set_default_dtype(dtype)


@pytest.fixture
def build(tiny, seeded):
    """A factory of tiny models in eval mode, whose every parameter is random (a forgotten bias would show).

    ``build(NeZhaForMaskedLM, dtype="float64", num_labels=3)``.
    """
    from paddle_nezha._paddle import paddle

    def make(kind, dtype="float32", **changes):
        model = kind(tiny(**changes))
        model.to(dtype=dtype)
        draw = np.random.default_rng(7)
        with paddle.no_grad():
            for parameter in model.parameters():
                noise = 0.2 * draw.standard_normal(parameter.shape)
                parameter.set_value((parameter.astype("float64").numpy() + noise).astype(dtype))
        model.eval()
        return model

    return make


@pytest.fixture
def ids(rng):
    """A factory of ids [B, L] without the pad id: ``ids(2, 7)``."""
    from paddle_nezha._paddle import paddle

    return lambda *shape, low=1, high=99: paddle.to_tensor(rng.integers(low, high, shape), dtype="int64")
