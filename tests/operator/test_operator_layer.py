"""GELU with its bias, and LayerNorm(residual + dropout(x + bias)), against their definitions in float64."""

import numpy as np
import pytest
import torch
from packing import instruction_set, runnable_sets, tensor

from paddle_nezha import operator
from paddle_nezha._paddle import paddle

pytestmark = pytest.mark.usefixtures("seeded")

# Rows and widths on both sides of whole vectors (2 to 16 lanes) and of the pieces of 64 rows that sums are made in.
SHAPES = [(1, 1), (3, 5), (64, 37), (65, 48), (130, 768)]
LIMITS = {"float64": 1e-13, "float32": 3e-6}  # sums of at most 768 terms, of the largest value
EPSILON = 1e-5  # wide enough that a row of one column, whose variance is 0, does not divide by it


def close(got, truth, dtype):
    truth = truth.detach().numpy()
    return np.abs(got.numpy() - truth).max() <= LIMITS[dtype] * max(1.0, np.abs(truth).max())


def leaves(rng, shapes, dtype):
    """The same numbers twice: for the operator in `dtype`, for PyTorch in float64."""
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    return [tensor(array) for array in arrays], [torch.tensor(a.astype("float64"), requires_grad=True) for a in arrays]


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("isa", runnable_sets())
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gelu_is_the_exact_form_forward_and_backward(shape, isa, dtype, rng):
    ours, theirs = leaves(rng, [shape, shape[1:], shape], dtype)
    truth = torch.nn.functional.gelu(theirs[0] + theirs[1])
    truth.backward(theirs[2].detach())
    with instruction_set(isa):
        got = operator.gelu(*ours[:2])
        got.backward(ours[2].detach())
    assert close(got, truth, dtype)
    assert all(close(one.grad, other.grad, dtype) for one, other in zip(ours[:2], theirs[:2]))


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("isa", runnable_sets())
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_residual_norm_is_layer_norm_of_the_sum_forward_and_backward(shape, isa, dtype, rng):
    ours, theirs = leaves(rng, [shape, shape, shape[1:], shape[1:], shape[1:], shape], dtype)
    x, residual, bias, weight, shift, grad = theirs
    epsilon = float(np.float32(EPSILON))  # as Paddle rounds it
    truth = torch.nn.functional.layer_norm(x + bias + residual, shape[1:], weight, shift, epsilon)
    truth.backward(grad.detach())
    with instruction_set(isa):
        got = operator.residual_norm(*ours[:5], EPSILON)
        got.backward(ours[5].detach())
    assert close(got, truth, dtype)
    assert all(close(one.grad, other.grad, dtype) for one, other in zip(ours[:5], theirs[:5]))


@pytest.mark.parametrize("isa", runnable_sets())
def test_dropout_hits_the_product_and_not_the_residual(isa, rng):
    ones = tensor(np.ones([200, 40]), "float64")
    with instruction_set(isa):
        drawn = operator.residual_norm(ones, tensor(np.zeros([200, 40])), *parameters(40), EPSILON, dropout=0.25)
        drawn.sum().backward()
    # A row is 0 and 4/3 before it is normalised, so what was kept is what is larger.
    kept = drawn.numpy() > 0
    assert abs(kept.mean() - 0.75) < 5 * (0.25 * 0.75 / kept.size) ** 0.5  # five deviations of independent draws


@pytest.mark.parametrize("isa", runnable_sets())
def test_what_lies_behind_a_row_in_memory_reaches_no_gradient(isa):
    # Five columns fill no vector of most sets, and attention has left its keys, NaN, where dropout's factors then lie.
    with instruction_set(isa):
        operator.packed_attention(paddle.full([1, 300, 24], float("nan")), heads=1, max_relative_position=5)
        given = [tensor(np.ones([3, 5]) * np.arange(5), "float32") for _ in range(2)] + parameters(5, "float32")
        operator.residual_norm(*given, EPSILON, dropout=0.5).sum().backward()
    assert all(np.isfinite(one.grad.numpy()).all() for one in given)


def parameters(width, dtype="float64"):
    """A bias of 0, and LayerNorm's weight 1 and shift 0."""
    return [tensor(value * np.ones([width]), dtype) for value in (0.0, 1.0, 0.0)]
