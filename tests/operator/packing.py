"""The operator beside the definition: sequences of any lengths, packed, and what NumPy's float64 says of them."""

import ctypes
import os
from contextlib import contextmanager

import numpy as np
from reference import Attention, table

from paddle_nezha import operator
from paddle_nezha._paddle import paddle

SETS = ("avx512", "avx2", "portable")
ISA = "PADDLE_NEZHA_ISA"


def runnable_sets():
    """The instruction sets of the loaded library that this processor runs, the best first."""
    names = ctypes.CDLL(str(operator.load())).nezha_instruction_sets
    names.restype = ctypes.c_char_p
    return names().decode().split(", ")


@contextmanager
def instruction_set(name):
    before = os.environ.get(ISA)
    os.environ[ISA] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[ISA]
        else:
            os.environ[ISA] = before


def tensor(array, dtype=None, frozen=False):
    made = paddle.to_tensor(np.asarray(array, dtype))
    made.stop_gradient = frozen
    return made


def starts_of(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype("int32")


def drawn(rng, tokens, heads, size, scale=1.0):
    """qkv [tokens, 3N] and a context's gradient [tokens, N], of numbers that float32 holds exactly."""
    width = heads * size
    return [(scale * rng.standard_normal([tokens, n])).astype("float32").astype("float64") for n in (3 * width, width)]


class Definition:
    """Attention of packed sequences by the definition.

    Args:
        qkv: [tokens, 3N]. m: reach of the sinusoid table, 0 for none; tables: [2, R, D] in its place.
        visible: bool [tokens]. factors: what dropout multiplies with, [H, L, L] for each sequence.
        queries: the positions looked at in each sequence; what others give stays NaN. None is all.
    """

    def __init__(self, qkv, lengths, heads, m=0, tables=None, visible=None, factors=None, queries=None):
        self.lengths, self.heads, self.tables = lengths, heads, tables
        self.starts, self.queries = starts_of(lengths), queries
        self.tokens, self.size = len(qkv), qkv.shape[1] // 3 // heads
        if tables is None:
            both = (table(m, self.size),) * 2 if m else (None, None)
        else:
            both = tuple(tables)
        self.parts = []
        self.context = np.full([self.tokens, heads * self.size], np.nan)
        self.log_sum_exp = np.full([heads, self.tokens], np.nan)
        for index, (first, end) in enumerate(zip(self.starts, self.starts[1:])):
            if first == end:
                self.parts.append(None)
                continue
            q, k, v = (self._split(x) for x in np.split(qkv[first:end], 3, 1))
            asked = np.arange(end - first) if queries is None else np.asarray(queries)
            seen = np.ones(end - first, bool) if visible is None else visible[first:end]
            factor = 1.0 if factors is None else factors[index][None]
            one = Attention(q[:, :, asked], k, v, *both, seen, factor, None if queries is None else list(asked))
            self.parts.append((one, asked))
            self.context[first + asked] = self._joined(one.context)
            with np.errstate(divide="ignore"):
                hidden = np.where(seen, one.scores[0], -np.inf)
                peak = hidden.max(-1, initial=-1e300)
                self.log_sum_exp[:, first + asked] = peak + np.log(np.exp(hidden - peak[..., None]).sum(-1))

    def _split(self, x):
        return x.reshape(1, len(x), self.heads, self.size).transpose(0, 2, 1, 3)

    @staticmethod
    def _joined(x):
        return x.transpose(0, 2, 1, 3).reshape(x.shape[2], -1)

    def gradients(self, grad):
        """Of qkv [tokens, 3N] and the tables [2, R, D], given the context's; that of other queries counts as 0."""
        slope, width = np.zeros([self.tokens, 3 * self.heads * self.size]), self.heads * self.size
        tables = None if self.tables is None else np.zeros_like(self.tables)
        for first, end, part in zip(self.starts, self.starts[1:], self.parts):
            if part is None:
                continue
            one, asked = part
            q, k, v, keys, values = one.gradients(self._split(grad[first + asked]))
            slope[first + asked, :width] = self._joined(q)
            slope[first:end, width : 2 * width] = self._joined(k)
            slope[first:end, 2 * width :] = self._joined(v)
            if tables is not None:
                tables += np.stack([keys, values])
        return slope, tables


class Answer:
    """What the operator gives for NumPy arrays: `context`, `log_sum_exp` and, asked for, `gradients`."""

    def __init__(self, qkv, lengths=None, heads=1, m=0, tables=None, visible=None, dropout=0.0, dtype="float64"):
        self.qkv = tensor(qkv, dtype)
        self.tables = None if tables is None else tensor(tables, dtype)
        outputs = []
        plain = operator.run_operator

        def kept(*arguments):
            outputs.extend(plain(*arguments))
            return outputs

        operator.run_operator = kept  # the one way to the second output, which no caller needs
        try:
            self.tensor = operator.packed_attention(
                self.qkv,
                None if visible is None else paddle.to_tensor(np.asarray(visible, bool)),
                None if lengths is None else paddle.to_tensor(starts_of(lengths)),
                heads=heads,
                max_relative_position=m if tables is None else (len(tables[0]) - 1) // 2,
                tables=self.tables,
                dropout=dropout,
            )
        finally:
            operator.run_operator = plain
        self.context, self.log_sum_exp = self.tensor.numpy(), outputs[1].numpy()

    def gradients(self, grad):
        self.tensor.backward(tensor(grad, self.context.dtype, frozen=True))
        return self.qkv.grad.numpy(), None if self.tables is None else self.tables.grad.numpy()


def off(got, truth, scale=None):
    """Greatest deviation on the scale of the truth, or on the one given. Infinities must be the same ones."""
    got, truth = np.asarray(got, "float64"), np.asarray(truth, "float64")
    assert got.shape == truth.shape
    if not got.size:
        return 0.0
    endless = np.isinf(truth)
    assert (got[endless] == truth[endless]).all()
    scale = np.abs(truth[~endless]).max(initial=0.0) if scale is None else scale
    return np.abs(np.where(endless, 0.0, got - np.where(endless, 0.0, truth))[~endless]).max(initial=0.0) / (
        scale or 1.0
    )


def factors_of(seed, lengths, heads, dropout, dtype="float64", batch=None):
    """What dropout multiplies each probability with, [H, L, L] for each sequence, read off the operator itself.

    Equal scores, and values that are 1 for one key in each column: the context is the row of factors over L. So many
    columns as keys take heads of at most 256, so the keys go by in portions, each drawing the same seed again.
    """
    longest = max(lengths)
    size = min(256, longest + longest % 2)
    tokens, starts = sum(lengths), starts_of(lengths)
    factors = [np.zeros([heads, n, n]) for n in lengths]
    for first in range(0, longest, size):
        qkv = np.zeros([tokens, 3, heads, size])
        for start, n in zip(starts, lengths):
            for key in range(first, min(first + size, n)):
                qkv[start + key, 2, :, key - first] = 1.0
        paddle.seed(seed)
        if batch is None:
            context = Answer(qkv.reshape(tokens, -1), lengths, heads, dropout=dropout, dtype=dtype).context
        else:
            context = Answer(qkv.reshape(len(lengths), longest, -1), None, heads, dropout=dropout, dtype=dtype).context
        context = context.reshape(tokens, heads, size)
        for index, (start, n) in enumerate(zip(starts, lengths)):
            part = context[start : start + n, :, : max(0, min(size, n - first))]
            factors[index][:, :, first : first + size] = n * part.transpose(1, 0, 2)
    # They are 0 or 1 / (1 - p) exactly; p is Paddle's float32 attribute.
    share = 1 / (1 - float(np.float32(dropout))) if dropout < 1 else 0.0
    for one in factors:
        if dtype == "float64" and dropout < 1:
            assert np.abs(one[one > share / 2] / share - 1).max(initial=0.0) < 1e-12
    return [np.where(one > share / 2, share, 0.0) for one in factors]
