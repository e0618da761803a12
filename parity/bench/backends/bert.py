"""Plain BERT as Paddle offers it: `paddle.nn.TransformerEncoder`, what PaddleNLP's own BERT is made of."""

from paddle_nezha._paddle import F, Tensor, nn, paddle
from parity.bench.backends.inputs import Heads
from parity.bench.backends.paddle_base import Attention, PaddleEngine, additive
from parity.bench.plan import Setting


class Bert(nn.Layer):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        sizes = setting.sizes
        width = sizes["hidden_size"]
        self.words = nn.Embedding(sizes["vocab_size"], width)
        self.positions = nn.Embedding(sizes["max_position_embeddings"], width)
        self.segments = nn.Embedding(sizes["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, epsilon=1e-12)
        self.dropout = nn.Dropout(setting.dropout)
        layer = nn.TransformerEncoderLayer(
            width,
            sizes["num_attention_heads"],
            sizes["intermediate_size"],
            dropout=setting.dropout,
            activation="gelu",
            attn_dropout=setting.dropout,
            act_dropout=0.0,
        )
        self.encoder = nn.TransformerEncoder(layer, sizes["num_hidden_layers"])
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor, mask: Tensor) -> "tuple[Tensor, Tensor]":
        """Ids and their mask, int64 [B, L]; gives the last hidden states and the pooled first one."""
        places = paddle.arange(ids.shape[1], dtype="int64")
        embedded = self.words(ids) + self.positions(places) + self.segments(paddle.zeros_like(ids))
        states = self.encoder(self.dropout(self.norm(embedded)), additive(mask))
        return states, paddle.tanh(self.pooler(states[:, 0]))


def plain_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """As `paddle.nn.MultiHeadAttention` computes it, [B, H, L, D]."""
    scores = paddle.matmul(query * query.shape[-1] ** -0.5, key, transpose_y=True) + mask
    return paddle.matmul(F.softmax(scores), value)


class PaddleBert(PaddleEngine):
    def make(self) -> nn.Layer:
        return Bert(self.setting)

    def encode(self, ids: Tensor, mask: Tensor, padded: bool) -> Tensor:
        return self.model(ids, mask)[0]

    def attention(self, given: Heads) -> Attention:
        mask = additive(paddle.to_tensor(given.visible))
        return Attention.of(given, False, lambda query, key, value: plain_attention(query, key, value, mask))
