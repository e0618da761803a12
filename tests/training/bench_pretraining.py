"""How much of a pre-training's time is the model's own: a run as `paddle-nezha pretrain` makes it, on a corpus, and
within it the time of the engine's steps (forward, backward, optimizer). Run from a checkout:

    python tests/training/bench_pretraining.py CORPUS [tiny|base] [steps]

The time is that from the beginning of the third step to the end of the last, so it holds everything between them:
making the batches (in this process, no workers), metrics, the progress line, and a checkpoint every 50 steps. The first
two steps warm up. One thread unless OMP_NUM_THREADS says otherwise.
"""

import os
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import zlib  # noqa: E402, F401  before Paddle, whose release 2.6.2 breaks it otherwise

from paddle_nezha import tune_cpu  # noqa: E402
from paddle_nezha.training.engine import Engine  # noqa: E402
from paddle_nezha.training.pretraining.settings import PretrainingSettings  # noqa: E402
from paddle_nezha.training.pretraining.trainer import pretrain  # noqa: E402

SHAPES = {
    "tiny": {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024},
    "base": {},
}
WARM_UP = 2


def main(corpus: str, shape: str = "tiny", steps: str = "100") -> None:
    spans: "list[tuple[float, float]]" = []
    original = Engine.step

    def timed(*arguments):
        begun = time.perf_counter()
        outcome = original(*arguments)
        spans.append((begun, time.perf_counter()))
        return outcome

    Engine.step = timed
    tune_cpu()
    with tempfile.TemporaryDirectory() as folder:
        pretrain(
            PretrainingSettings(
                corpus=corpus, output=folder, steps=int(steps), config=SHAPES[shape], batch_size=16, max_length=128,
                optimizer="adamw", learning_rate=1e-4, checkpoint_every=50, eval_every=None, workers=0, curves=False,
            )
        )  # fmt: skip
    spans = spans[WARM_UP:]
    whole, model = spans[-1][1] - spans[0][0], sum(end - begun for begun, end in spans)
    share = f"{whole:.1f} s, of them in the model {model:.1f} s: {model / whole:.4f}"
    print(f"{shape}: {len(spans)} steps of 16 x 128, {share}")


if __name__ == "__main__":
    main(*sys.argv[1:])
