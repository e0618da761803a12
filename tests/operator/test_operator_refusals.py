"""What the operator cannot compute is refused with a message, in every case, wherever it runs and never by a crash; and
the edges that it does compute."""

import functools
import json
import re

import children
import numpy as np
import pytest
from packing import ISA, Answer, drawn, off, starts_of, tensor

from paddle_nezha._paddle import paddle
from paddle_nezha.operator import packed_attention

pytestmark = pytest.mark.usefixtures("seeded")

# Each call, and what its message says. `x(shape, dtype)` makes a tensor, `call` is packed_attention, `raw` the operator
# itself with a seed of one's own; `slope` goes back through attention, GELU or the norm of [2, 4, 24] from a gradient
# of one's own, and `back` through an operator after some of what its backward reads was replaced.
REFUSED = {
    "float16": ("call(x([4, 24], 'float16'), None, starts(4), heads=1)", "expects qkv in float32 or float64"),
    "integers": ("call(x([4, 24], 'int32'), None, starts(4), heads=1)", "expects qkv in float32 or float64"),
    "one axis": ("call(x([24]), None, starts(1), heads=1)", r"expects qkv \[tokens, 3N\] or .*, but got \[24\]"),
    "four axes": ("call(x([1, 1, 4, 24]), heads=1)", r"expects qkv .* but got \[1, 1, 4, 24\]"),
    "heads that do not divide": ("call(x([1, 4, 24]), heads=3)", "24 columns for 3 heads"),
    "heads that leave a rest": ("call(x([1, 4, 24]), heads=5)", "as wide as 3 .* heads .* 24 columns for 5 heads"),
    "no heads": ("call(x([1, 4, 24]), heads=0)", "24 columns for 0 heads"),
    "fewer than no heads": ("call(x([1, 4, 24]), heads=-1)", "24 columns for -1 heads"),
    "no columns": ("call(x([1, 4, 0]), heads=1)", "0 columns for 1 heads"),
    "a width that is no multiple of 3": ("call(x([1, 4, 25]), heads=1)", "25 columns for 1 heads"),
    "an odd head": ("call(x([1, 4, 21]), heads=1)", "an even head size of at most 256, but got 7"),
    "a large head": ("call(x([1, 4, 774]), heads=1)", "an even head size of at most 256, but got 258"),
    "a reach below 0": ("call(x([1, 4, 24]), heads=1, max_relative_position=-1)", r"1 to 2\^20 .* but got -1"),
    "a reach beyond 2^20": ("call(x([1, 4, 24]), heads=1, max_relative_position=2**20 + 1)", "but got 1048577"),
    "tables without a reach": ("call(x([1, 4, 24]), heads=1, tables=x([2, 1, 8]))", r"1 to 2\^20 .* but got 0"),
    "no starts": ("call(x([4, 24]), heads=1)", r"starts beside qkv \[tokens, 3N\], but got none"),
    "starts of a batch": (
        "call(x([1, 4, 24]), None, starts(4), heads=1)",
        r"no starts beside qkv \[batch, length, 3N\]",
    ),
    "starts in int64": ("call(x([4, 24]), None, starts(4).astype('int64'), heads=1)", "starts int32"),
    "starts of two axes": (
        "call(x([4, 24]), None, starts(4).reshape([1, 2]), heads=1)",
        r"starts int32 \[2\] .*\[1, 2\]",
    ),
    # (An optional tensor without elements reaches an operator as none.)
    "empty starts": ("call(x([4, 24]), None, x([0], 'int32'), heads=1)", "starts (int32|beside qkv)"),
    "starts that fall": ("call(x([9, 24]), None, starts(4, -3, 8), heads=1)", "starts that rise from 0 .* tokens, 9"),
    "starts beyond the tokens": (
        "call(x([4, 24]), None, starts(4, 5), heads=1)",
        "starts that rise from 0 .* tokens, 4",
    ),
    "starts that jump beyond": (
        "call(x([4, 24]), None, starts(9, -5), heads=1)",
        "starts that rise from 0 .* tokens, 4",
    ),
    "starts that end early": ("call(x([4, 24]), None, starts(3), heads=1)", "starts that rise from 0"),
    "starts that begin late": ("call(x([4, 24]), None, starts(4) + 1 - starts(1), heads=1)", "starts that rise from 0"),
    "negative starts": ("call(x([4, 24]), None, starts(-2, 6), heads=1)", "starts that rise from 0"),
    "one start": ("call(x([4, 24]), None, x([1], 'int32'), heads=1)", "starts that rise from 0"),
    "visible in integers": (
        "call(x([1, 4, 24]), x([1, 4], 'int64'), heads=1)",
        r"visible bool, one for each of 4 tokens",
    ),
    "visible too short": ("call(x([1, 4, 24]), x([1, 3], 'bool'), heads=1)", r"visible bool, .* but got bool \[1, 3\]"),
    "tables of other rows": (
        "call(x([1, 4, 24]), heads=1, max_relative_position=5, tables=x([2, 10, 8]))",
        r"tables float32 \[2, 11, 8\] on a CPU, but got float32 \[2, 10, 8\]",
    ),
    "one table": (
        "call(x([1, 4, 24]), heads=1, max_relative_position=5, tables=x([11, 8]))",
        r"but got float32 \[11, 8\]",
    ),
    "tables of another head": (
        "call(x([1, 4, 24]), heads=1, max_relative_position=5, tables=x([2, 11, 6]))",
        r"but got float32 \[2, 11, 6\]",
    ),
    "tables of another dtype": (
        "call(x([1, 4, 24]), heads=1, max_relative_position=5, tables=x([2, 11, 8], 'float64'))",
        r"tables float32 \[2, 11, 8\] .* but got float64 \[2, 11, 8\]",
    ),
    "dropout below 0": ("call(x([1, 4, 24]), heads=1, dropout=-0.1)", r"a dropout of 0 \.\. 1, but got -0.1"),
    "dropout above 1": ("call(x([1, 4, 24]), heads=1, dropout=1.1)", r"a dropout of 0 \.\. 1, but got 1.1"),
    "dropout that is no number": ("call(x([1, 4, 24]), heads=1, dropout=float('nan'))", r"a dropout of 0 \.\. 1"),
    "dropout without a seed": ("raw(0.1, None)", r"a seed beside a dropout, but got none"),
    "a seed of one number": ("raw(0.1, x([1], 'int64'))", r"seed int64 \[2\] on a CPU, but got int64 \[1\]"),
    "a seed in int32": ("raw(0.1, x([2], 'int32'))", r"seed int64 \[2\] on a CPU, but got int32 \[2\]"),
    "a bias too short": (
        "call(x([1, 4, 24]), heads=1, bias=x([8]))",
        r"bias float32 \[24\] on a CPU, but got float32 \[8\]",
    ),
    "a bias in another dtype": (
        "call(x([1, 4, 24]), heads=1, bias=x([24], 'float64'))",
        r"bias float32 \[24\] .* got float64 \[24\]",
    ),
    "gelu of integers": (
        "operator.gelu(x([4, 8], 'int32'), x([8], 'int32'))",
        r"x in float32 or float64 .* got int32 \[4, 8\]",
    ),
    "gelu's bias too short": (
        "operator.gelu(x([4, 8]), x([7]))",
        r"bias float32 \[8\] on a CPU, but got float32 \[7\]",
    ),
    "a residual of another shape": ("norm(residual=x([4, 7]))", r"residual float32 \[4, 8\] .* got float32 \[4, 7\]"),
    "a residual in another dtype": ("norm(residual=x([4, 8], 'float64'))", r"residual float32 .* got float64 \[4, 8\]"),
    "a weight too long": ("norm(weight=x([9]))", r"weight float32 \[8\] .* got float32 \[9\]"),
    "a shift in another dtype": ("norm(shift=x([8], 'float64'))", r"shift float32 \[8\] .* got float64 \[8\]"),
    "attention's gradient too small": (
        "slope('attention', x([1]))",
        r"a gradient of the context float32 \[2, 4, 8\] on a CPU, but got float32 \[1\]",
    ),
    "attention's gradient too large": ("slope('attention', x([2, 4, 24]))", r"but got float32 \[2, 4, 24\]"),
    "learned attention's gradient too small": ("slope('learned', x([2, 4, 1]))", r"context .* got float32 \[2, 4, 1\]"),
    "gelu's gradient too small": (
        "slope('gelu', x([1]))",
        r"a gradient of the output float32 \[2, 4, 24\] on a CPU, but got float32 \[1\]",
    ),
    "the norm's gradient too small": ("slope('norm', x([1, 4, 24]))", r"output .* but got float32 \[1, 4, 24\]"),
    "a backward of integers": (
        "back('nezha_attention', QKV=x([1, 4, 24], 'int32'))",
        "expects qkv in float32 or float64",
    ),
    "a log-sum-exp too short": (
        "back('nezha_attention', LogSumExp=x([1, 1, 3]))",
        r"log_sum_exp float32 \[1, 1, 4\] on a CPU, but got float32 \[1, 1, 3\]",
    ),
    "a backward of other rows": ("back('nezha_gelu', X=x([4, 9]))", r"bias float32 \[9\] .* got float32 \[8\]"),
    "a mean too short": ("back('nezha_norm', Mean=x([3]))", r"mean float32 \[4\] .* got float32 \[3\]"),
    "an inverse in float64": ("back('nezha_norm', Inverse=x([4], 'float64'))", r"inverse float32 .* got float64 \[4\]"),
    "an unknown instruction set": (
        "isa('sse9') or call(x([1, 4, 24]), heads=1)",
        r"PADDLE_NEZHA_ISA must name an instruction set that this .* runs \(.*portable\), but is 'sse9': unset it",
    ),
    "an instruction set in capitals": ("isa('AVX2') or call(x([1, 4, 24]), heads=1)", "but is 'AVX2'"),
    "an unknown set at the backward": ("lost()", "but is 'sse9'"),
}

_SCRIPT = """
import json, os, sys
import numpy as np
from paddle_nezha import operator
from paddle_nezha._paddle import paddle

def x(shape, dtype="float32"):
    return paddle.zeros(shape, dtype)
def starts(*lengths):
    return paddle.to_tensor(np.cumsum([0, *lengths]).astype("int32"))
def isa(name):
    os.environ["PADDLE_NEZHA_ISA"] = name
def raw(dropout, seed):
    given = {"QKV": x([1, 4, 24]), "Bias": x([24]), "Visible@OPTIONAL": None, "Starts@OPTIONAL": None,
             "Seed@OPTIONAL": seed}
    settings = {"heads": 1, "max_relative_position": 0, "dropout": dropout}
    return operator.run_operator("nezha_attention", given, settings, ("Out", "LogSumExp"))
def norm(**given):
    rest = dict(x=x([4, 8]), residual=x([4, 8]), bias=x([8]), weight=x([8]), shift=x([8]))
    return operator.residual_norm(**{**rest, **given}, epsilon=1e-5)
def slope(what, grad):
    qkv, row = x([2, 4, 24]), x([24])
    qkv.stop_gradient = False
    out = {
        "attention": lambda: call(qkv, heads=1, max_relative_position=3),
        "learned": lambda: call(qkv, heads=1, max_relative_position=3, tables=x([2, 7, 8])),
        "gelu": lambda: operator.gelu(qkv, row),
        "norm": lambda: operator.residual_norm(qkv, qkv, row, row, row, 1e-5),
    }[what]()
    paddle.grad([out], [qkv], grad_outputs=[grad])
def back(name, **changed):
    inputs, settings, outputs = {
        "nezha_attention": (
            {"QKV": x([1, 4, 24]), "Bias": x([24]), "Visible@OPTIONAL": None, "Starts@OPTIONAL": None,
             "Seed@OPTIONAL": None},
            {"heads": 1, "max_relative_position": 0, "dropout": 0.0}, ("Out", "LogSumExp"),
        ),
        "nezha_gelu": ({"X": x([4, 8]), "Bias": x([8])}, {}, ("Out",)),
        "nezha_norm": (
            {"X": x([4, 8]), "Residual": x([4, 8]), "Bias": x([8]), "Weight": x([8]), "Shift": x([8]),
             "Seed@OPTIONAL": None},
            {"epsilon": 1e-5, "dropout": 0.0}, ("Out", "Mean", "Inverse"),
        ),
    }[name]
    next(iter(inputs.values())).stop_gradient = False
    kept = {**inputs, **dict(zip(outputs, operator.run_operator(name, inputs, settings, outputs)))}
    for one, other in changed.items():
        kept[one].get_tensor().set(other.numpy(), paddle.CPUPlace())
    kept["Out"].sum().backward()
def lost():
    qkv = x([1, 4, 24])
    qkv.stop_gradient = False
    out = call(qkv, heads=1)
    isa("sse9")
    out.sum().backward()
call = operator.packed_attention
for name, code in json.loads(sys.argv[1]).items():
    try:
        eval(code)
        said = "nothing"
    except Exception as error:
        said = str(error)
    os.environ.pop("PADDLE_NEZHA_ISA", None)
    print(json.dumps([name, said]), flush=True)
assert (call(x([1, 4, 24]), heads=1).numpy() == 0).all()  # and goes on working
"""


@functools.lru_cache(maxsize=1)
def messages():
    """What each call said, from one process that outlived them all."""
    out, _ = children.run(_SCRIPT, json.dumps({name: code for name, (code, _) in REFUSED.items()}), changes={ISA: None})
    return dict(map(json.loads, out.splitlines()))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    said = messages()[name]
    assert re.search(REFUSED[name][1], said), said


# ---- wherever it runs

_ELSEWHERE = """
import json, os, sys
import numpy as np
from paddle_nezha import operator
from paddle_nezha._paddle import paddle

way, folder, trains = sys.argv[2:]
right, wrong = (np.array(ends, "int32") for ends in ([0, 2, 5], [0, 9, 5]))
qkv = np.ones([5, 48], "float32")

class Attention(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.bias = self.create_parameter([48])
    def forward(self, qkv, starts):
        return operator.packed_attention(qkv, None, starts, heads=2, bias=self.bias, max_relative_position=3)

def traced(layer):
    spec = [paddle.static.InputSpec([None, 48], "float32"), paddle.static.InputSpec([None], "int32")]
    if way == "to_static":
        return paddle.jit.to_static(layer, input_spec=spec, full_graph=True)
    paddle.jit.save(layer, folder + "/saved", input_spec=spec)
    return paddle.jit.load(folder + "/saved") if way == "jit.load" else predictor()

def predictor():
    graph = "/saved.pdmodel" if paddle.__version__.startswith("2.") else "/saved.json"
    config = paddle.inference.Config(folder + graph, folder + "/saved.pdiparams")
    config.disable_glog_info()
    made = paddle.inference.create_predictor(config)
    def run(qkv, starts):
        for name, value in zip(made.get_input_names(), (qkv, starts)):
            made.get_input_handle(name).copy_from_cpu(value.numpy())
        made.run()
        return made.get_output_handle(made.get_output_names()[0]).copy_to_cpu()
    return run

def said(work):
    try:
        return "nothing: " + str(work())
    except Exception as error:
        return type(error).__name__ + ": " + str(error)

operator.load()
layer = Attention()
layer.train() if trains == "True" else layer.eval()
run = layer if way == "eager" else traced(layer)
good, bad = (lambda ends=ends: run(paddle.to_tensor(qkv), paddle.to_tensor(ends)) for ends in (right, wrong))
good()
messages = [said(bad)]
os.environ["PADDLE_NEZHA_ISA"] = "sse9"
messages.append(said(good))
del os.environ["PADDLE_NEZHA_ISA"]
if trains == "True":
    leaf = paddle.to_tensor(qkv, stop_gradient=False)
    loss = run(leaf, paddle.to_tensor(right)).sum()
    os.environ["PADDLE_NEZHA_ISA"] = "sse9"
    messages.append(said(loss.backward))
    del os.environ["PADDLE_NEZHA_ISA"]
assert np.isfinite(np.asarray(good())).all()  # and goes on working
print(json.dumps(messages))
"""


@pytest.mark.parametrize("way", ["eager", "to_static", "jit.load", "inference"])
def test_a_refusal_arrives_with_its_message_and_the_process_goes_on(way, tmp_path):
    """Paddle's executors end the process at exceptions that are not their own, or lose what they say."""
    script = tmp_path / "elsewhere.py"  # Paddle reads the source of what it traces
    script.write_text(_ELSEWHERE, encoding="utf-8")
    trains = way == "eager" or (way == "to_static" and not paddle.__version__.startswith("2."))  # 2.6 cannot there
    run = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    out, _ = children.run(run, script, way, tmp_path, trains, changes={ISA: None})
    first, *others = json.loads(out.splitlines()[-1])
    assert re.search(r"^ValueError: (.|\n)*starts that rise from 0 to the number of tokens, 5", first), first
    assert len(others) == (2 if trains else 1)
    for said in others:
        assert re.search(r"^ValueError: (.|\n)*PADDLE_NEZHA_ISA must name .*but is 'sse9': unset it", said), said


# ---- what is at the edge, and is computed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("learned", [False, True], ids=["sinusoid", "learned"])
@pytest.mark.parametrize("shape", [(0, 24), (0, 5, 24), (3, 0, 24), (0, 0, 24)], ids=str)
def test_no_tokens(shape, learned, dtype):
    qkv = tensor(np.zeros(shape), dtype)
    tables = tensor(np.ones([2, 11, 4]), dtype) if learned else None
    bias = tensor(np.ones([24]), dtype)
    lists = [starts_of([]), starts_of([0]), starts_of([0, 0])] if len(shape) == 2 else [None]
    for starts in lists:
        starts = None if starts is None else paddle.to_tensor(starts)
        context = packed_attention(
            qkv, None, starts, heads=2, max_relative_position=5, tables=tables, bias=bias, dropout=0.1
        )
        assert context.shape == [*shape[:-1], 8]
        if paddle.__version__.startswith("2."):  # which sums up no tensor of nothing
            return
        (context.sum() + bias.sum()).backward()
    assert qkv.grad is None or qkv.grad.shape == list(shape)
    assert (bias.grad.numpy() == len(lists)).all()  # nothing of it from the operator
    if learned:
        assert tables.grad is None or (tables.grad.numpy() == 0).all()


def views(array):
    """The same numbers in tensors whose memory lies otherwise."""
    length, width = array.shape
    wide = tensor(np.concatenate([np.full([length, 3], 7.0), array, np.full([length, 2], 9.0)], 1), frozen=True)
    deep = tensor(np.repeat(array, 2, 0), frozen=True)
    yield "transposed", tensor(np.ascontiguousarray(array.T), frozen=True).transpose([1, 0])
    yield "columns of a wider one", wide[:, 3 : 3 + width]
    yield "every second row", deep[::2]
    yield "reversed twice", paddle.flip(paddle.flip(tensor(array, frozen=True), [0]), [0])


def test_inputs_that_do_not_lie_side_by_side_in_memory(rng):
    qkv, grad = drawn(rng, 20, 2, 8)
    tables, bias = rng.standard_normal([2, 11, 8]), rng.standard_normal([48])
    visible = rng.random(20) < 0.7
    truth = Answer(qkv + bias, [13, 7], 2, tables=tables, visible=visible)
    slope, slopes = truth.gradients(grad)
    seen = paddle.to_tensor(np.stack([visible, ~visible], 1))[:, 0]
    starts = paddle.to_tensor(np.array([[0, 1], [13, 2], [20, 3]], "int32"))[:, 0]
    table = tensor(np.ascontiguousarray(tables.transpose(2, 1, 0)), frozen=True).transpose([2, 1, 0])
    shift = tensor(np.stack([bias, bias], 1), frozen=True)[:, 0]
    for (name, x), (_, g) in zip(views(qkv), views(grad)):
        x.stop_gradient = table.stop_gradient = False
        table.clear_gradient()
        context = packed_attention(x, seen, starts, heads=2, max_relative_position=5, tables=table, bias=shift)
        got, got_tables = paddle.grad(context, [x, table], g)
        assert off(context.numpy(), truth.context) <= 1e-14, name  # the bias is added in the same order or nearly so
        assert off(got.numpy(), slope) <= 1e-13 and off(got_tables.numpy(), slopes) <= 1e-13, name


def test_visible_may_come_in_any_shape_of_so_many(rng):
    qkv, _ = drawn(rng, 12, 2, 8)
    visible = rng.random([2, 6]) < 0.7
    answers = [
        packed_attention(tensor(qkv.reshape(2, 6, -1)), paddle.to_tensor(visible.reshape(shape)), heads=2).numpy()
        for shape in ((2, 6), (12,), (2, 1, 6))
    ]
    assert all((answers[0] == other).all() for other in answers)
