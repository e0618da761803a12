"""NeZha's forward in plain NumPy float64, written from the definition: every pair of positions has its own table row.

Slow and direct on purpose. It reads a model's weights by their PaddleNLP names, and shares no line with the package.
"""

import math

import numpy as np


def table(m, head_size):
    """A [R, D]."""
    rows = np.empty((2 * m + 1, head_size))
    for r in range(2 * m + 1):
        for i in range(head_size // 2):
            angle = r / 10000 ** (2 * i / head_size)
            rows[r, 2 * i], rows[r, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return rows


def rows(queries, length, m):
    """The table row of each pair, [F, T]; `queries` lists the positions of the queries."""
    return np.array([[min(max(t - f, -m), m) + m for t in range(length)] for f in queries])


def probabilities(scores, visible):
    """Softmax over the visible keys; 0 where hidden, and everywhere for a query that sees none."""
    peak = np.max(np.where(visible, scores, -1e300), -1, keepdims=True)
    weights = np.where(visible, np.exp(np.where(visible, scores - peak, 0.0)), 0.0)
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1.0, total)


class Attention:
    """Attention of the queries at positions `queries` (all, by default) with its gradients.

    q [B, H, F, D]; k, v [B, H, T, D]; the tables [R, D], or None for plain attention; visible fits [B, H, F, T];
    factor [B, H, F, T] is what dropout multiplies the probabilities with.
    """

    def __init__(self, q, k, v, key_table=None, value_table=None, visible=True, factor=1.0, queries=None):
        self.q, self.k, self.v, self.factor = q, k, v, factor
        self.scale = 1.0 / math.sqrt(q.shape[-1])
        shape = (q.shape[2], k.shape[2], q.shape[3])
        if key_table is None:
            key_table = value_table = np.zeros((3, shape[2]))
        queries = range(shape[0]) if queries is None else queries
        self.table_shape = key_table.shape
        self.rows = rows(queries, shape[1], (len(key_table) - 1) // 2)
        self.key_rows, self.value_rows = key_table[self.rows], value_table[self.rows]  # [F, T, D]
        self.scores = self.scale * (
            np.einsum("bhfd,bhtd->bhft", q, k) + np.einsum("bhfd,ftd->bhft", q, self.key_rows, optimize=True)
        )
        self.probs = probabilities(self.scores, np.broadcast_to(visible, self.scores.shape))
        self.context = self._weigh(self.probs * factor, v, self.value_rows)

    @staticmethod
    def _weigh(weights, vectors, positions):
        return np.einsum("bhft,bhtd->bhfd", weights, vectors) + np.einsum(
            "bhft,ftd->bhfd", weights, positions, optimize=True
        )

    def gradients(self, grad):
        """Of q, k, v and the two tables, given the context's gradient [B, H, F, D]."""
        grad_probs = self.factor * (
            np.einsum("bhfd,bhtd->bhft", grad, self.v)
            + np.einsum("bhfd,ftd->bhft", grad, self.value_rows, optimize=True)
        )
        inner = (grad_probs * self.probs).sum(-1, keepdims=True)
        grad_scores = self.scale * self.probs * (grad_probs - inner)
        weights = self.probs * self.factor
        return (
            self._weigh(grad_scores, self.k, self.key_rows),
            np.einsum("bhft,bhfd->bhtd", grad_scores, self.q),
            np.einsum("bhft,bhfd->bhtd", weights, grad),
            self._by_row(grad_scores, self.q),
            self._by_row(weights, grad),
        )

    def _by_row(self, weights, vectors):
        total = np.zeros(self.table_shape)
        np.add.at(total, self.rows, np.einsum("bhft,bhfd->ftd", weights, vectors, optimize=True))
        return total


_erf = np.vectorize(math.erf, otypes=[float])


def gelu(x):
    return 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0)))


def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_10": lambda x: np.clip(gelu(x), -10, 10),
    "gelu_fast": gelu_tanh,
    "gelu_new": gelu_tanh,
    "gelu_python": gelu,
    "gelu_tanh": gelu_tanh,
    "linear": lambda x: x,
    "mish": lambda x: x * np.tanh(np.logaddexp(0.0, x)),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "swish": lambda x: x * sigmoid(x),
    "tanh": np.tanh,
}


class Reference:
    """The base model with the weights of a Paddle base model or head."""

    def __init__(self, model):
        self.config = model.config
        state = {name: tensor.astype("float64").numpy() for name, tensor in model.state_dict().items()}
        self.weights = {name.removeprefix("nezha."): value for name, value in state.items()}

    def linear(self, x, name):
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def norm(self, x, name):
        epsilon = float(np.float32(self.config.layer_norm_eps))  # Paddle keeps the attribute as a float32
        centred = x - x.mean(-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
        return normed * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def embed(self, words, types):
        total = words + self.weights["embeddings.token_type_embeddings.weight"][types]
        if self.config.position_encoding == "absolute":
            total = total + self.weights["embeddings.position_embeddings.weight"][: words.shape[1]]
        return self.norm(total, "embeddings.layer_norm")

    def heads(self, x):
        batch, length, _ = x.shape
        return x.reshape(batch, length, self.config.num_attention_heads, -1).transpose(0, 2, 1, 3)

    def tables(self, name):
        if self.config.position_encoding == "functional_relative":
            one = table(self.config.max_relative_position, self.config.head_size)
            return one, one
        if self.config.position_encoding == "parametric_relative":
            return self.weights[f"{name}.relative_key.weight"], self.weights[f"{name}.relative_value.weight"]
        return None, None

    def layer(self, x, number, visible=True, queries=None):
        """The layer's output [B, F, N] and probabilities [B, H, F, T] for the queries at these positions."""
        name = f"encoder.layer.{number}"
        asking = x if queries is None else x[:, queries]
        q, k, v = (
            self.heads(self.linear(read, f"{name}.attention.{part}"))
            for part, read in (("query", asking), ("key", x), ("value", x))
        )
        attended = Attention(q, k, v, *self.tables(f"{name}.attention"), visible=visible, queries=queries)
        context = attended.context.transpose(0, 2, 1, 3).reshape(asking.shape)
        y = self.norm(asking + self.linear(context, f"{name}.attention.dense"), f"{name}.attention.layer_norm")
        wide = ACTIVATIONS[self.config.hidden_act](self.linear(y, f"{name}.ffn"))
        return self.norm(y + self.linear(wide, f"{name}.ffn_output"), f"{name}.layer_norm"), attended.probs

    def __call__(self, ids, types=None, visible=True):
        """Sequence [B, L, N], pooled [B, N], hidden states and probabilities of every layer."""
        types = np.zeros_like(ids) if types is None else types
        states, attentions = [self.embed(self.weights["embeddings.word_embeddings.weight"][ids], types)], []
        for number in range(self.config.num_hidden_layers):
            state, probs = self.layer(states[-1], number, visible)
            states.append(state)
            attentions.append(probs)
        return states[-1], np.tanh(self.linear(states[-1][:, 0], "pooler.dense")), states, attentions

    def masked_lm(self, sequence):
        """Logits [B, L, V]."""
        x = ACTIVATIONS[self.config.hidden_act](self.linear(sequence, "cls.predictions.dense"))
        x = self.norm(x, "cls.predictions.layer_norm")
        return x @ self.weights["embeddings.word_embeddings.weight"].T + self.weights["cls.predictions.decoder_bias"]


def cross_entropy(logits, labels, ignored=(-100, -1)):
    """Mean over labelled rows of [M, K] logits; 0 when there is none."""
    losses = []
    for row, label in zip(logits.reshape(-1, logits.shape[-1]), np.ravel(labels)):
        if label not in ignored:
            peak = row.max()
            losses.append(peak + math.log(np.exp(row - peak).sum()) - row[label])
    return sum(losses) / max(len(losses), 1)


def error(got, truth):
    """Greatest deviation on the scale of the truth (of 1 where the truth is 0 throughout)."""
    got, truth = np.asarray(got, "float64"), np.asarray(truth, "float64")
    assert got.shape == truth.shape, f"shape {got.shape}, but the reference has {truth.shape}"
    return np.max(np.abs(got - truth)) / (np.max(np.abs(truth)) or 1.0)
