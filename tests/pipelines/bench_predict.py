"""How much of `paddle-nezha predict`'s time is the model's own, and whether its memory grows with the file. Run from a
checkout, with a fine-tuned model and a file of any length:

    python tests/pipelines/bench_predict.py MODEL FILE

The model's time is that of its forward passes within the run; at the end some of its batches are computed once more by
themselves, for what the caches cost. The run's time has a second or two of imports in it, which a file of 100,000 lines
does not feel. Times are the processor's, since a machine may be busy with other things. Memory is the process's, as
means over five parts of the run: it is constant if the last is near the second (the first fills the heap that
`tune_cpu` keeps). One thread unless OMP_NUM_THREADS says otherwise.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import zlib  # noqa: E402, F401  before Paddle, whose release 2.6.2 breaks it otherwise

import numpy as np  # noqa: E402

from paddle_nezha import tune_cpu  # noqa: E402
from paddle_nezha._paddle import paddle  # noqa: E402
from paddle_nezha.pipelines.predict import Predictor  # noqa: E402

PARTS, KEPT, EVERY = 5, 40, 25


def resident() -> float:
    """MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def main(model: str, file: str) -> None:
    tune_cpu()
    predictor = Predictor.open(model)
    forward = predictor._objective.logits
    times: "list[float]" = []
    tokens: "list[int]" = []
    memory: "list[float]" = []
    kept = []

    def timed(batch, *rest):
        begun = time.process_time()
        logits = forward(batch, *rest)
        logits.numpy()
        times.append(time.process_time() - begun)
        tokens.append(int(batch["attention_mask"].sum()))
        memory.append(resident())
        if len(times) % EVERY == 1 and len(kept) < KEPT:
            kept.append(batch)
        return logits

    predictor._objective.logits = timed
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        done = predictor.run(predictor.source(file), Path(folder) / "answers.jsonl", progress=False)
    whole = time.process_time() - begun
    predictor._objective.logits = forward
    begun = time.process_time()
    with paddle.no_grad():
        for batch in kept:
            forward(batch).numpy()
    alone = sum(int(batch["attention_mask"].sum()) for batch in kept) / (time.process_time() - begun)
    rate = sum(tokens) / whole
    parts = ", ".join(f"{np.mean(part):.0f}" for part in np.array_split(memory, PARTS))
    print(
        f"{done.rows:,} examples, {sum(tokens):,} tokens: {rate:,.0f} tokens a second, {sum(times) / whole:.3f} of the "
        f"model's within the run and {rate / alone:.3f} of the model's alone; memory {parts} MiB"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
