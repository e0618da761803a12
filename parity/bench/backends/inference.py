"""Paddle Inference with oneDNN: the model is exported to a temporary folder and served from there."""

import os
import tempfile
from pathlib import Path
from typing import Any, Callable

from paddle_nezha import NeZhaModel
from paddle_nezha._paddle import nn, paddle
from parity.bench.backends.bert import Bert
from parity.bench.backends.inputs import ids_and_mask
from parity.bench.backends.ours import config_of, forced_form, operator_problem
from parity.bench.plan import Case, Engine, Setting


class _Entry(nn.Layer):
    """Ids and mask in, last hidden states and pooled output out."""

    def __init__(self, model: nn.Layer, by_name: bool) -> None:
        super().__init__()
        self.model, self.by_name = model, by_name

    def forward(self, ids: Any, mask: Any) -> Any:
        states = self.model(ids, attention_mask=mask) if self.by_name else self.model(ids, mask)
        return states[0], states[1]


def exported_form() -> str:
    """The form that an export of ours is made in: the operator where it is there and can be asked for."""
    if paddle.__version__.startswith("2."):
        return ""  # measured on 2.6.2: its predictor crashes the process on a graph that holds the operator
    try:
        with forced_form("operator"):
            return "" if operator_problem() else "operator"
    except Exception:
        return ""


def export(model: nn.Layer, path: str, form: str, by_name: bool) -> None:
    """Writes the traced model, lengths open, to files that begin with `path`."""
    spec = [paddle.static.InputSpec([None, None], "int64", name) for name in ("ids", "mask")]
    model.eval()
    with forced_form(form):
        traced = paddle.jit.to_static(_Entry(model, by_name), input_spec=spec, full_graph=True)
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
    by_name = False

    def __init__(self, engine: Engine, setting: Setting) -> None:
        paddle.set_device("cpu")
        paddle.seed(20)
        self.engine, self.setting = engine, setting
        self.facts = {"paddle": paddle.__version__}
        self.predictor: Any = None

    def make(self) -> nn.Layer:
        raise NotImplementedError

    def form(self) -> str:
        return ""

    def build(self) -> None:
        if self.predictor is not None:
            return
        with tempfile.TemporaryDirectory(prefix="parity-bench-") as folder:
            path = os.path.join(folder, "model")
            export(self.make(), path, self.form(), self.by_name)
            self.predictor = serve(path, int(os.environ["OMP_NUM_THREADS"]))

    def forget(self) -> None:
        pass

    def call(self, task: str, case: Case) -> "Callable[[], Any]":
        self.build()
        arrays = dict(zip(("ids", "mask"), ids_and_mask(case, self.setting)))
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
    by_name = True

    def __init__(self, engine: Engine, setting: Setting) -> None:
        super().__init__(engine, setting)
        self._form = exported_form()
        self.facts["form"] = self._form or "dense"

    def form(self) -> str:
        return self._form

    def make(self) -> nn.Layer:
        return NeZhaModel(config_of(self.setting, self.engine.relative))


class BertServed(_Served):
    def make(self) -> nn.Layer:
        return Bert(self.setting)
