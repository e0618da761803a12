"""The published arithmetic in Paddle, written out plainly: every position's row gathered to [L, L, D], for each layer.

It follows PaddleNLP 3.0.0b4's `NeZhaModel` operation by operation, its copies of the buffer included; where PaddleNLP
is installed, that itself is measured too (`foreign`).
"""

import math

from paddle_nezha._paddle import F, Tensor, nn, paddle
from paddle_nezha.relative import relative_table
from parity.bench.backends.inputs import Heads
from parity.bench.backends.paddle_base import Attention, PaddleEngine, additive
from parity.bench.plan import Engine, Setting

_LENGTH = 512  # the published buffer, whatever the input's length


def gathered(setting: Setting, length: int) -> Tensor:
    """The table by query and key, [L, L, D]."""
    reach = setting.sizes["max_relative_position"]
    table = paddle.to_tensor(relative_table(reach, setting.head_size).astype("float32"))
    places = paddle.arange(length, dtype="int64")
    rows = paddle.clip(places.unsqueeze(0) - places.unsqueeze(1), -reach, reach) + reach
    return paddle.gather(table, rows.reshape([-1])).reshape([length, length, setting.head_size])


def published_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, buffer: Tensor, dropout: float = 0.0
) -> Tensor:
    """[B, H, L, D] each; `buffer` [512, 512, D] or larger, copied whole before each use."""
    batch, count, length, size = query.shape
    scores = paddle.matmul(query, key.transpose((0, 1, 3, 2)))
    rows = buffer.detach().clone()[:length, :length, :]
    by_query = query.transpose((2, 0, 1, 3)).reshape((length, batch * count, size))
    terms = paddle.matmul(by_query, rows.transpose((0, 2, 1))).reshape((length, batch, count, length))
    scores = (scores + terms.transpose((1, 2, 0, 3))) / math.sqrt(size) + mask
    probs = F.softmax(scores, axis=-1)
    if dropout:
        probs = F.dropout(probs, dropout)
    context = paddle.matmul(probs, value)
    rows = buffer.clone()[:length, :length, :]
    by_query = probs.transpose((2, 0, 1, 3)).reshape((length, batch * count, length))
    terms = paddle.matmul(by_query, rows).reshape((length, batch, count, size))
    return context + terms.transpose((1, 2, 0, 3))


class _Layer(nn.Layer):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width, inner = setting.sizes["hidden_size"], setting.sizes["intermediate_size"]
        self.heads, self.size = setting.sizes["num_attention_heads"], setting.head_size
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.ffn, self.ffn_output = nn.Linear(width, inner), nn.Linear(inner, width)
        self.attention_norm, self.norm = (nn.LayerNorm(width, epsilon=1e-12) for _ in range(2))
        self.dropout = nn.Dropout(setting.dropout)
        self.probability = setting.dropout
        self.buffer = gathered(setting, _LENGTH)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            project(states).reshape([0, 0, self.heads, self.size]).transpose((0, 2, 1, 3))
            for project in (self.query, self.key, self.value)
        )
        dropout = self.probability if self.training else 0.0
        context = published_attention(query, key, value, mask, self.buffer, dropout)
        context = context.transpose((0, 2, 1, 3)).reshape([0, 0, self.heads * self.size])
        attended = self.attention_norm(states + self.dropout(self.dense(context)))
        return self.norm(self.dropout(self.ffn_output(F.gelu(self.ffn(attended)))) + attended)


class PublishedNeZha(nn.Layer):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        sizes = setting.sizes
        width = sizes["hidden_size"]
        self.words = nn.Embedding(sizes["vocab_size"], width)
        self.segments = nn.Embedding(sizes["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, epsilon=1e-12)
        self.dropout = nn.Dropout(setting.dropout)
        self.layers = nn.LayerList([_Layer(setting) for _ in range(sizes["num_hidden_layers"])])
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor, mask: Tensor) -> "tuple[Tensor, Tensor]":
        states = self.dropout(self.norm(self.words(ids) + self.segments(paddle.zeros_like(ids))))
        added = additive(mask)
        for layer in self.layers:
            states = layer(states, added)
        return states, paddle.tanh(self.pooler(states[:, 0]))


class Published(PaddleEngine):
    def __init__(self, engine: Engine, setting: Setting) -> None:
        super().__init__(engine, setting)
        self.facts["form"] = "[L, L, D], written out"
        self._buffers: "dict[int, Tensor]" = {}

    def make(self) -> nn.Layer:
        return PublishedNeZha(self.setting)

    def encode(self, ids: Tensor, mask: Tensor, padded: bool) -> Tensor:
        return self.model(ids, mask)[0]

    def attention(self, given: Heads) -> Attention:
        mask = additive(paddle.to_tensor(given.visible))
        length = max(_LENGTH, given.query.shape[2])

        def compute(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return published_attention(query, key, value, mask, self._buffer(length))

        return Attention.of(given, False, compute)

    def _buffer(self, length: int) -> Tensor:
        if length not in self._buffers:
            self._buffers.clear()
            self._buffers[length] = gathered(self.setting, length)
        return self._buffers[length]

    def forget(self) -> None:
        self._buffers.clear()
