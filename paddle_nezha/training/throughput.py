"""How much of what a machine can do a training uses."""

import time

from paddle_nezha._paddle import paddle
from paddle_nezha.config import NeZhaConfig


def training_flops(config: NeZhaConfig, tokens: float, pairs: float, predicted: float) -> float:
    """Floating-point operations of the matrix products of forward and backward, a multiply-add as two.

    What is recomputed, and what the relative positions cost, is not counted: it is the work a plain BERT would have.

    Args:
        tokens: computed, without padding.
        pairs: the sum over texts of length squared.
        predicted: tokens that the masked LM decodes.
    """
    width, layers = config.hidden_size, config.num_hidden_layers
    a_token = layers * (8 * width * width + 4 * width * config.intermediate_size)
    a_pair = layers * 4 * width
    a_word = 2 * width * (width + config.vocab_size)
    return 3.0 * (tokens * a_token + pairs * a_pair + predicted * a_word)


def product_peak(dtype: str = "float32") -> float:
    """FLOP/s of a large matrix product here, now, with Paddle's threads: the best of a few. It is less while others use
    the machine."""
    size = 2048 if paddle.device.get_device() == "cpu" else 8192
    a, b = (paddle.ones([size, size], dtype) for _ in range(2))
    best = float("inf")
    for _ in range(6):
        begun = time.perf_counter()
        paddle.matmul(a, b)[0, 0].item()
        best = min(best, time.perf_counter() - begun)
    return 2.0 * size**3 / best
