"""Activations and losses against NumPy in double precision."""

import copy
import math

import numpy as np
import pytest

import strata as st
from nn_checks import RNG, check_gradients, close, rand, sigmoid, t64
from strata import nn
from strata.nn import functional as F


ERF = np.vectorize(math.erf)
ACTIVATIONS = {
    "ReLU": (nn.ReLU(), lambda x: np.maximum(x, 0)),
    "ReLU6": (nn.ReLU6(), lambda x: np.clip(x, 0, 6)),
    "SiLU": (nn.SiLU(), lambda x: x * sigmoid(x)),
    "Mish": (nn.Mish(), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "ELU": (nn.ELU(0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    "CELU": (nn.CELU(0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x / 0.7))),
    "SELU": (nn.SELU(), lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    "LeakyReLU": (nn.LeakyReLU(0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "PReLU": (nn.PReLU(3).double(), lambda x: np.where(x > 0, x, 0.25 * x)),
    "Hardtanh": (nn.Hardtanh(-0.5, 0.8), lambda x: np.clip(x, -0.5, 0.8)),
    "Hardsigmoid": (nn.Hardsigmoid(), lambda x: np.clip(x + 3, 0, 6) / 6),
    "Hardswish": (nn.Hardswish(), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "GELU": (nn.GELU(), lambda x: x * 0.5 * (1 + ERF(x / math.sqrt(2)))),
    "GELU tanh": (nn.GELU("tanh"), lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "Softplus": (nn.Softplus(2.0), lambda x: np.log1p(np.exp(2 * x)) / 2),
    "Softsign": (nn.Softsign(), lambda x: x / (1 + abs(x))),
    "Softshrink": (nn.Softshrink(), lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0)),
    "Hardshrink": (nn.Hardshrink(), lambda x: np.where(abs(x) > 0.5, x, 0)),
    "Sigmoid": (nn.Sigmoid(), sigmoid),
    "LogSigmoid": (nn.LogSigmoid(), lambda x: np.log(sigmoid(x))),
    "Tanh": (nn.Tanh(), np.tanh),
    "Tanhshrink": (nn.Tanhshrink(), lambda x: x - np.tanh(x)),
    "Threshold": (nn.Threshold(0.1, 20.0), lambda x: np.where(x > 0.1, x, 20.0)),
    "GLU": (nn.GLU(), lambda x: x[..., :2] * sigmoid(x[..., 2:])),
    "Softmax": (nn.Softmax(1), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    "Softmin": (nn.Softmin(1), lambda x: np.exp(-x) / np.exp(-x).sum(1, keepdims=True)),
    "LogSoftmax": (nn.LogSoftmax(1), lambda x: x - np.log(np.exp(x).sum(1, keepdims=True))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    module, reference = ACTIVATIONS[name]
    x = rand(2, 3, 4)
    x[np.abs(np.abs(x) - 0.5) < 0.05] = 0.3  # off the kinks
    x[np.abs(x) < 0.05] = 0.25
    x[np.abs(x - 0.8) < 0.05] = 0.9
    x[np.abs(x - 0.1) < 0.05] = 0.3
    close(module(t64(x)), reference(x), 1e-9)
    check_gradients(module, t64(x))
    assert repr(copy.deepcopy(module)) == repr(module)


def test_activations_in_place():
    x = t64(rand(3, 4))
    y = nn.ReLU(inplace=True)(x)
    assert y is x and (x.numpy() >= 0).all()


def log_softmax(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classification_losses(reduction):
    def reduce(a, weights=None):
        if reduction == "mean":
            return a.sum() / (len(a.ravel()) if weights is None else weights.sum())
        return a.sum() if reduction == "sum" else a

    x, target, w = rand(5, 4), np.array([0, 3, 1, 1, 2]), np.array([0.5, 1.0, 2.0, 0.3])
    logs = log_softmax(x)
    picked = -logs[np.arange(5), target]
    close(nn.CrossEntropyLoss(reduction=reduction)(t64(x), st.tensor(target)), reduce(picked))
    close(nn.NLLLoss(reduction=reduction)(t64(logs), st.tensor(target)), reduce(picked))
    weighted = nn.CrossEntropyLoss(t64(w), reduction=reduction)
    close(weighted(t64(x), st.tensor(target)), reduce(picked * w[target], w[target]))
    close(nn.NLLLoss(t64(w), reduction=reduction)(t64(logs), st.tensor(target)), reduce(picked * w[target], w[target]))
    smooth = 0.9 * picked + 0.1 * -logs.mean(1)
    close(nn.CrossEntropyLoss(label_smoothing=0.1, reduction=reduction)(t64(x), st.tensor(target)), reduce(smooth))
    soft = np.exp(rand(5, 4))
    soft /= soft.sum(1, keepdims=True)
    close(nn.CrossEntropyLoss(reduction=reduction)(t64(x), t64(soft)), reduce(-(soft * logs).sum(1)))
    ignored = np.array([0, -100, 1, -100, 2])
    keep = ignored >= 0
    wanted = np.where(keep, -logs[np.arange(5), np.maximum(ignored, 0)], 0)
    close(nn.CrossEntropyLoss(reduction=reduction)(t64(x), st.tensor(ignored)), reduce(wanted, keep))
    image = rand(2, 4, 3, 2)
    classes = RNG.integers(0, 4, (2, 3, 2))
    dense = -np.take_along_axis(log_softmax(image), classes[:, None], 1)[:, 0]
    close(nn.CrossEntropyLoss(reduction=reduction)(t64(image), st.tensor(classes)), reduce(dense))
    wk = w[classes]
    close(nn.CrossEntropyLoss(t64(w), reduction=reduction)(t64(image), st.tensor(classes)), reduce(dense * wk, wk))
    check_gradients(weighted, t64(x), st.tensor(target))


X, Y = rand(4, 3), rand(4, 3)
P, B = sigmoid(X), (Y > 0).astype(float)
SIGNS = np.sign(Y)
LOSSES = {
    "MSE": (nn.MSELoss, (X, Y), (X - Y) ** 2),
    "L1": (nn.L1Loss, (X, Y), abs(X - Y)),
    "SmoothL1": (lambda **k: nn.SmoothL1Loss(beta=0.5, **k), (X, Y),
                 np.where(abs(X - Y) < 0.5, (X - Y) ** 2, abs(X - Y) - 0.25)),
    "Huber": (lambda **k: nn.HuberLoss(delta=0.5, **k), (X, Y),
              np.where(abs(X - Y) <= 0.5, (X - Y) ** 2 / 2, 0.5 * (abs(X - Y) - 0.25))),
    "BCE": (nn.BCELoss, (P, B), -(B * np.log(P) + (1 - B) * np.log(1 - P))),
    "BCEWithLogits": (nn.BCEWithLogitsLoss, (X, B), -(B * np.log(P) + (1 - B) * np.log(1 - P))),
    "BCEWithLogits pos": (lambda **k: nn.BCEWithLogitsLoss(pos_weight=t64([1.0, 2.0, 3.0]), **k), (X, B),
                          -(B * np.log(P) * [1, 2, 3] + (1 - B) * np.log(1 - P))),
    "KLDiv": (nn.KLDivLoss, (np.log(P), sigmoid(Y)), sigmoid(Y) * (np.log(sigmoid(Y)) - np.log(P))),
    "PoissonNLL": (nn.PoissonNLLLoss, (X, np.exp(Y)), np.exp(X) - np.exp(Y) * X),
    "GaussianNLL": (nn.GaussianNLLLoss, (X, Y, np.exp(Y)), 0.5 * (Y + (X - Y) ** 2 / np.exp(Y))),
    "SoftMargin": (nn.SoftMarginLoss, (X, SIGNS), np.log1p(np.exp(-SIGNS * X))),
    "HingeEmbedding": (nn.HingeEmbeddingLoss, (X, SIGNS), np.where(SIGNS == 1, X, np.maximum(0, 1 - X))),
    "MarginRanking": (lambda **k: nn.MarginRankingLoss(0.1, **k), (X, Y, SIGNS), np.maximum(0, -SIGNS * (X - Y) + 0.1)),
    "CosineEmbedding": (nn.CosineEmbeddingLoss, (X, Y, SIGNS[:, 0]), np.where(
        SIGNS[:, 0] == 1, 1 - (X * Y).sum(1) / np.linalg.norm(X, axis=1) / np.linalg.norm(Y, axis=1),
        np.maximum(0, (X * Y).sum(1) / np.linalg.norm(X, axis=1) / np.linalg.norm(Y, axis=1)))),
    "TripletMargin": (nn.TripletMarginLoss, (X, Y, X + 0.3 * Y), np.maximum(
        0, np.linalg.norm(X - Y + 1e-6, axis=1) - np.linalg.norm(-0.3 * Y + 1e-6, axis=1) + 1)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name):
    make, inputs, wanted = LOSSES[name]
    args = [t64(a) for a in inputs]
    close(make(reduction="none")(*args), wanted, 1e-9)
    close(make(reduction="sum")(*args), wanted.sum(), 1e-9)
    close(make()(*args), wanted.mean(), 1e-9)
    first = t64(inputs[0], grad=True)
    assert st.autograd.gradcheck(lambda x: make()(x, *args[1:]), (first,))


def test_losses_refuse_shapes_and_reductions():
    with pytest.raises(ValueError, match="same"):
        nn.BCELoss()(t64(P), t64(B[:2]))
    with pytest.raises(ValueError):
        nn.MSELoss(reduction="median")(t64(X), t64(Y))
    close(F.kl_div(t64(np.log(P)), t64(sigmoid(Y)), reduction="batchmean"), LOSSES["KLDiv"][2].sum() / 4)


def test_a_reduction_in_the_place_of_size_average_is_refused():
    with pytest.raises(TypeError, match="reduction='none' by name"):
        F.mse_loss(t64([1.0]), t64([2.0]), "none")
    with pytest.raises(TypeError, match="size_average"):
        nn.MSELoss("sum")
