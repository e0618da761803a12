"""Paddle Inference with oneDNN: the model is exported to a temporary folder and served from there."""

import os
import tempfile
from pathlib import Path
from typing import Any, Callable

from paddle_nezha import NeZhaModel
from paddle_nezha._paddle import nn, paddle
from paddle_nezha.export import MODEL_NAME, export
from parity.bench.backends.bert import Bert
from parity.bench.backends.inputs import ids_and_mask
from parity.bench.backends.ours import config_of, operator_problem
from parity.bench.plan import Case, Engine, Setting


class _Entry(nn.Layer):
    """Ids and mask in, last hidden states and pooled output out."""

    def __init__(self, model: nn.Layer) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, mask: Any) -> Any:
        states = self.model(ids, mask)
        return states[0], states[1]


def save(model: nn.Layer, path: str) -> None:
    """Writes the traced model, lengths open, to files that begin with `path`."""
    spec = [paddle.static.InputSpec([None, None], "int64", name) for name in ("ids", "mask")]
    model.eval()
    traced = paddle.jit.to_static(_Entry(model), input_spec=spec, full_graph=True)
    traced.eval()
    paddle.jit.save(traced, path)


def serve(path: str, threads: int) -> Any:
    graph = next(path + end for end in (".json", ".pdmodel") if Path(path + end).is_file())
    config = paddle.inference.Config(graph, path + ".pdiparams")
    if graph.endswith(".json"):
        config.enable_new_ir()
        config.enable_new_executor()
    config.disable_gpu()
    config.enable_mkldnn()
    config.set_cpu_math_library_num_threads(threads)
    config.disable_glog_info()
    return paddle.inference.create_predictor(config)


class _Served:
    def __init__(self, engine: Engine, setting: Setting) -> None:
        paddle.set_device("cpu")
        paddle.seed(20)
        self.engine, self.setting = engine, setting
        self.facts = {"paddle": paddle.__version__}
        self.predictor: Any = None

    def write(self, folder: str) -> str:
        """Writes the graph into a folder and gives what its files' names begin with."""
        raise NotImplementedError

    def build(self) -> None:
        if self.predictor is not None:
            return
        with tempfile.TemporaryDirectory(prefix="parity-bench-") as folder:
            self.predictor = serve(self.write(folder), int(os.environ["OMP_NUM_THREADS"]))

    def forget(self) -> None:
        pass

    def call(self, task: str, case: Case) -> "Callable[[], Any]":
        self.build()
        ids, mask = ids_and_mask(case, self.setting)
        arrays = {"ids": ids, "mask": mask, "input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}
        names = self.predictor.get_input_names()
        outputs = self.predictor.get_output_names()

        def run() -> None:
            for name in names:
                self.predictor.get_input_handle(name).copy_from_cpu(arrays[name])
            self.predictor.run()
            for name in outputs:
                self.predictor.get_output_handle(name).copy_to_cpu()

        return run


class OursServed(_Served):
    """As `paddle-nezha export --op` writes it; without the operator where there is none."""

    def __init__(self, engine: Engine, setting: Setting) -> None:
        super().__init__(engine, setting)
        self._op = not operator_problem()
        self.facts["form"] = "operator" if self._op else "dense"

    def write(self, folder: str) -> str:
        model = NeZhaModel(config_of(self.setting, self.engine.relative))
        written = export(model, os.path.join(folder, "served"), op=self._op)
        return os.path.join(written.folder, MODEL_NAME)


class BertServed(_Served):
    def write(self, folder: str) -> str:
        path = os.path.join(folder, "model")
        save(Bert(self.setting), path)
        return path
