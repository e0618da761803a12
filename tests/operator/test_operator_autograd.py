"""The operator in Paddle's autograd: whatever may be asked of any other operation."""

import numpy as np
import pytest
from packing import Answer, drawn, off, tensor

from paddle_nezha._paddle import paddle
from paddle_nezha.operator import packed_attention

pytestmark = pytest.mark.usefixtures("seeded")


@pytest.fixture
def arrays(rng):
    """qkv, its context's gradient, tables."""
    return [*drawn(rng, 20, 2, 8), rng.standard_normal([2, 11, 8])]


def attention(qkv, tables=None, **settings):
    starts = paddle.to_tensor(np.array([0, 13, 20], "int32"))
    return packed_attention(qkv, None, starts, heads=2, max_relative_position=5, tables=tables, **settings)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_second_backward_gives_the_same_again(dropout, arrays):
    qkv, tables = tensor(arrays[0]), tensor(arrays[2])
    loss = (attention(qkv, tables, dropout=dropout) ** 2).sum()
    loss.backward(retain_graph=True)
    once = qkv.grad.numpy().copy(), tables.grad.numpy().copy()
    loss.backward()
    assert (qkv.grad.numpy() == 2 * once[0]).all() and (tables.grad.numpy() == 2 * once[1]).all()


def test_gradients_of_some_inputs_alone(arrays):
    qkv, tables = tensor(arrays[0]), tensor(arrays[2])
    grad = tensor(arrays[1], frozen=True)
    both = paddle.grad(attention(qkv, tables), [qkv, tables], grad)
    for inputs in ([qkv], [tables], [tables, qkv]):
        got = paddle.grad(attention(qkv, tables), inputs, grad)
        for one, of in zip(got, inputs):
            assert (one.numpy() == both[0 if of is qkv else 1].numpy()).all()
    assert qkv.grad is None and tables.grad is None


@pytest.mark.parametrize("frozen", ["qkv", "tables", "both"])
def test_frozen_inputs_get_no_gradient_and_change_no_other(frozen, arrays):
    free = Answer(arrays[0], [13, 7], 2, tables=arrays[2])
    truth = dict(zip(("qkv", "tables"), free.gradients(arrays[1])))
    leaves = {
        name: tensor(array, frozen=frozen in (name, "both"))
        for name, array in (("qkv", arrays[0]), ("tables", arrays[2]))
    }
    context = attention(**leaves)
    assert (context.numpy() == free.context).all() and context.stop_gradient == (frozen == "both")
    if frozen == "both":
        return
    context.backward(tensor(arrays[1], frozen=True))
    for name, leaf in leaves.items():
        assert leaf.grad is None if name == frozen else (leaf.grad.numpy() == truth[name]).all()


def test_without_gradients(arrays):
    """No graph is made: nothing is kept for a backward, and none goes back through what `no_grad` covered."""
    qkv, tables = tensor(arrays[0]), tensor(arrays[2])
    with paddle.no_grad():
        context = attention(qkv, tables)
    assert (context.numpy() == attention(qkv, tables).numpy()).all()
    (context * tensor(2.0)).sum().backward()
    assert context.stop_gradient and qkv.grad is None and tables.grad is None


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_inputs_are_untouched(dropout, arrays, rng):
    qkv, tables, grad = tensor(arrays[0]), tensor(arrays[2]), tensor(arrays[1], frozen=True)
    visible, starts = paddle.to_tensor(rng.random(20) < 0.5), paddle.to_tensor(np.array([0, 13, 20], "int32"))
    inputs = [qkv, tables, grad, visible, starts]
    before = [x.numpy().copy() for x in inputs]
    packed_attention(qkv, visible, starts, heads=2, max_relative_position=5, tables=tables, dropout=dropout).backward(
        grad
    )
    assert all((x.numpy() == old).all() for x, old in zip(inputs, before))


def test_gradients_flow_through_what_stands_before_and_behind(arrays):
    """The context's gradient comes as autograd makes it: broadcast, transposed, sliced, and of part of it."""
    weight = np.random.default_rng(1).standard_normal([48, 48])
    qkv = Answer(arrays[0] @ weight, [13, 7], 2, 5)
    for behind, grad in (
        (lambda c: c.sum(), np.ones([20, 16])),
        (lambda c: c.mean(0)[3], np.eye(16)[3][None] * np.full([20, 1], 1 / 20)),
        (lambda c: (c.transpose([1, 0]) * paddle.to_tensor(arrays[1].T)).sum(), arrays[1]),
        (
            lambda c: c[5:9, ::2].sum(),
            np.outer((np.arange(20) >= 5) & (np.arange(20) < 9), np.arange(16) % 2 == 0) * 1.0,
        ),
        (lambda c: (c.reshape([4, 5, 16])[::2]).sum(), np.repeat([1.0, 0, 1, 0], 5)[:, None] * np.ones([1, 16])),
    ):
        x = tensor(arrays[0])
        behind(attention(paddle.matmul(x, tensor(weight, frozen=True)))).backward()
        qkv.qkv.clear_gradient()
        slope = Answer(arrays[0] @ weight, [13, 7], 2, 5).gradients(grad)[0]
        assert off(x.grad.numpy(), slope @ weight.T) <= 1e-12  # 48 products in float64


def test_a_bias_is_added_and_gets_its_gradient(arrays):
    """[3N], over all tokens: that of the keys is 0, since a softmax does not see what it adds to all scores."""
    bias = np.random.default_rng(2).standard_normal(48)
    joined = Answer(arrays[0] + bias, [13, 7], 2, 5)
    slope = joined.gradients(arrays[1])[0]
    qkv, leaf = tensor(arrays[0]), tensor(bias)
    context = attention(qkv, bias=leaf)
    context.backward(tensor(arrays[1], frozen=True))
    assert off(context.numpy(), joined.context) <= 1e-14 and off(qkv.grad.numpy(), slope) <= 1e-14
    assert off(leaf.grad.numpy(), slope.sum(0)) <= 1e-13


def test_gradients_add_up_over_two_uses(arrays):
    qkv, grad = tensor(arrays[0]), tensor(arrays[1], frozen=True)
    (attention(qkv) + attention(qkv)).backward(grad)
    once = Answer(arrays[0], [13, 7], 2, 5).gradients(arrays[1])[0]
    assert (qkv.grad.numpy() == 2 * once).all()


class _Kept(paddle.autograd.PyLayer):
    """Keeps its input alone and computes attention again for the backward."""

    @staticmethod
    def forward(ctx, qkv):
        ctx.save_for_backward(qkv)
        return attention(qkv)

    @staticmethod
    def backward(ctx, grad):
        (qkv,) = ctx.saved_tensor()
        again = qkv.detach()
        again.stop_gradient = False
        with paddle.enable_grad():
            attention(again).backward(grad)
        return again.grad


def test_inside_a_layer_with_its_own_backward(arrays):
    qkv = tensor(arrays[0])
    _Kept.apply(qkv).backward(tensor(arrays[1], frozen=True))
    assert (qkv.grad.numpy() == Answer(arrays[0], [13, 7], 2, 5).gradients(arrays[1])[0]).all()


def test_recompute_draws_the_same_mask_again(arrays):
    grad = tensor(arrays[1], frozen=True)
    slopes = []
    for recompute in (False, True):
        paddle.seed(3)
        qkv = tensor(arrays[0])
        run = lambda x: attention(x, dropout=0.5)  # noqa: E731
        context = paddle.distributed.fleet.utils.recompute(run, qkv) if recompute else run(qkv)
        paddle.rand([7])  # what others draw between forward and backward changes nothing
        context.backward(grad)
        slopes.append((context.numpy(), qkv.grad.numpy()))
    assert (slopes[0][0] == slopes[1][0]).all() and (slopes[0][1] == slopes[1][1]).all()
