"""How long a base-size `.pdparams` takes to become a model, and how much memory: ours against `paddle.load` and
`set_state_dict`, each in a fresh process, in turn. Run from a checkout: python tests/checkpoint/bench_load.py [pairs]

Both sides build the same model, NeZhaForPretraining of the base size, from the same folder; the file is in the page
cache. Time is that of the loading alone, from the built model to the filled one; memory is the highest resident size of
the process beyond what it was before the model was built, in sizes of the tensors.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise
from pathlib import Path

import numpy as np

SIDES = ("ours", "paddle")


def prepare(folder: Path) -> int:
    """Random weights of the base size in a folder; the bytes of all tensors."""
    from paddle_nezha.checkpoint import TIES, parameter_shapes, pdparams
    from paddle_nezha.config import NeZhaConfig

    config = NeZhaConfig.from_pretrained("nezha-base-chinese", architectures=["NeZhaForPretraining"])
    rng = np.random.default_rng(0)
    shapes = parameter_shapes(config, "pretraining")
    arrays = {name: 0.02 * rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    for tied, partner in TIES.items():
        arrays[tied] = arrays[f"nezha.{partner}"]
    pdparams.write(folder / "model_state.pdparams", arrays)
    config.save_pretrained(folder)
    return sum({id(array): array.nbytes for array in arrays.values()}.values())


def resident() -> int:
    """Bytes of memory that the process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure(side: str, folder: Path) -> None:
    """The child: prints its seconds and its bytes."""
    from paddle_nezha import NeZhaConfig, NeZhaForPretraining
    from paddle_nezha._paddle import paddle
    from paddle_nezha.checkpoint import open_checkpoint

    config = NeZhaConfig.from_pretrained(folder)
    paddle.to_tensor(np.zeros(1, np.float32)).numpy()  # what Paddle sets up at first use
    before = resident()
    model = NeZhaForPretraining(config)
    start = time.perf_counter()
    if side == "ours":
        with open_checkpoint(folder) as opened:
            model._fill(opened)
    else:
        state = paddle.load(str(folder / "model_state.pdparams"))
        model.set_state_dict(state)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    check = float(model.nezha.encoder.layer[11].ffn.weight.astype("float64").sum())
    print(json.dumps({"seconds": seconds, "bytes": peak - before, "sum": check}))


def main(pairs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        size = prepare(Path(name))
        found: "dict[str, list[dict[str, float]]]" = {side: [] for side in SIDES}
        for pair in range(pairs):
            for side in SIDES if pair % 2 else SIDES[::-1]:
                command = [sys.executable, __file__, "--side", side, name]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[side].append(json.loads(done.stdout.splitlines()[-1]))
        assert len({run["sum"] for runs in found.values() for run in runs}) == 1
    ratios = sorted(one["seconds"] / other["seconds"] for one, other in zip(found["ours"], found["paddle"]))
    print(f"{size / 1e6:.0f} MB of tensors, {pairs} interleaved pairs, medians")
    for side, runs in found.items():
        seconds = statistics.median(run["seconds"] for run in runs)
        memory = statistics.median(run["bytes"] for run in runs) / size
        print(f"{side:8} {seconds:.3f} s   {memory:.2f} x the tensors")
    print(f"time, ours over Paddle's: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure(sys.argv[2], Path(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
