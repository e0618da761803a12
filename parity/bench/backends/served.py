"""BERT in the serving engines of others, exported from PyTorch: onnxruntime and OpenVINO, in float32."""

import os
import tempfile
from typing import Any, Callable

import torch
from torch import nn
from torch.nn import functional as F

from parity.bench.backends.inputs import ids_and_mask
from parity.bench.plan import Case, Engine, Setting


class _Layer(nn.Module):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width, inner = setting.sizes["hidden_size"], setting.sizes["intermediate_size"]
        self.heads, self.size = setting.sizes["num_attention_heads"], setting.head_size
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.ffn, self.ffn_output = nn.Linear(width, inner), nn.Linear(inner, width)
        self.attention_norm, self.norm = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))

    def forward(self, states: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        batch, length, width = states.shape
        query, key, value = (
            project(states).view(batch, length, self.heads, self.size).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=added)
        context = context.transpose(1, 2).reshape(batch, length, width)
        attended = self.attention_norm(states + self.dense(context))
        return self.norm(attended + self.ffn_output(F.gelu(self.ffn(attended))))


class TorchBert(nn.Module):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        sizes = setting.sizes
        width = sizes["hidden_size"]
        self.words = nn.Embedding(sizes["vocab_size"], width)
        self.positions = nn.Embedding(sizes["max_position_embeddings"], width)
        self.segments = nn.Embedding(sizes["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList([_Layer(setting) for _ in range(sizes["num_hidden_layers"])])
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> "tuple[torch.Tensor, torch.Tensor]":
        places = torch.arange(ids.shape[1], device=ids.device)
        states = self.norm(self.words(ids) + self.positions(places) + self.segments(torch.zeros_like(ids)))
        added = ((1.0 - mask.to(states.dtype)) * -1e4)[:, None, None, :]
        for layer in self.layers:
            states = layer(states, added)
        return states, torch.tanh(self.pooler(states[:, 0]))


class _Exported:
    def __init__(self, engine: Engine, setting: Setting) -> None:
        torch.manual_seed(20)
        torch.set_num_threads(1)
        self.setting = setting
        self.threads = int(os.environ["OMP_NUM_THREADS"])
        self.facts = {"torch": torch.__version__}
        self.compiled: Any = None
        self.build()  # an export that fails says so now

    def export(self, model: nn.Module, example: "tuple[torch.Tensor, torch.Tensor]") -> Any:
        raise NotImplementedError

    def run(self, ids: Any, mask: Any) -> Any:
        raise NotImplementedError

    def build(self) -> None:
        if self.compiled is None:
            model = TorchBert(self.setting).eval()
            ids, mask = map(torch.from_numpy, ids_and_mask(Case(2, 16), self.setting))
            with torch.no_grad():
                self.compiled = self.export(model, (ids, mask))

    def forget(self) -> None:
        pass

    def call(self, task: str, case: Case) -> "Callable[[], Any]":
        ids, mask = ids_and_mask(case, self.setting)
        return lambda: self.run(ids, mask)


class OnnxRuntime(_Exported):
    def export(self, model: nn.Module, example: "tuple[torch.Tensor, torch.Tensor]") -> Any:
        import onnxruntime

        self.facts["onnxruntime"] = onnxruntime.__version__
        open_axes = {0: "batch", 1: "length"}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        # Threads that wait by spinning would be timed, here and in whoever is measured next.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        with tempfile.TemporaryDirectory(prefix="parity-bench-") as folder:
            path = os.path.join(folder, "bert.onnx")
            torch.onnx.export(
                model,
                example,
                path,
                input_names=["ids", "mask"],
                output_names=["states", "pooled"],
                dynamic_axes={"ids": open_axes, "mask": open_axes, "states": open_axes, "pooled": {0: "batch"}},
                opset_version=17,
                dynamo=False,  # the other exporter needs onnxscript
            )
            return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, ids: Any, mask: Any) -> Any:
        return self.compiled.run(None, {"ids": ids, "mask": mask})


class OpenVino(_Exported):
    def export(self, model: nn.Module, example: "tuple[torch.Tensor, torch.Tensor]") -> Any:
        import openvino

        self.facts["openvino"] = openvino.__version__
        converted = openvino.convert_model(model, example_input=example)
        wanted = {
            "INFERENCE_NUM_THREADS": self.threads,
            "NUM_STREAMS": 1,
            # Its own choice is bfloat16 where the processor has it; everybody here computes in float32.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        return openvino.Core().compile_model(converted, "CPU", wanted).create_infer_request()

    def run(self, ids: Any, mask: Any) -> Any:
        return self.compiled.infer([ids, mask])
