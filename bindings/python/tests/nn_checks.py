"""What tests of modules compare with: references in double precision and finite differences."""

import numpy as np

import strata as st

RNG = np.random.default_rng(7)


def rand(*shape):
    return RNG.standard_normal(shape)


def t64(a, grad=False):
    return st.tensor(np.asarray(a, dtype=np.float64), requires_grad=grad)


def close(actual, wanted, tol=1e-10):
    a = actual.detach().numpy() if isinstance(actual, st.Tensor) else np.asarray(actual)
    np.testing.assert_allclose(a, wanted, rtol=tol, atol=tol)


def set64(module):
    """The module in float64 with normal random parameters, and these as NumPy arrays."""
    module.double()
    arrays = {}
    with st.no_grad():
        for name, p in module.named_parameters():
            value = rand(*p.shape) * 0.5
            p.copy_(t64(value))
            arrays[name] = value
    return arrays


def check_gradients(module, *inputs):
    """Central differences for the inputs that are floating and all parameters."""
    names = [n for n, _ in module.named_parameters()]
    params = [p.detach().clone().requires_grad_() for p in module.parameters()]
    differentiable = [i for i, x in enumerate(inputs) if x.is_floating_point()]

    def run(*values):
        given = list(inputs)
        for i, v in zip(differentiable, values):
            given[i] = v
        for name, v in zip(names, values[len(differentiable):]):
            path, _, leaf = name.rpartition(".")
            module.get_submodule(path)._parameters[leaf] = v
        out = module(*given)
        return out[0] if isinstance(out, tuple) else out

    floats = [inputs[i].detach().clone().requires_grad_() for i in differentiable]
    saved = {n: p for n, p in module.named_parameters()}
    try:
        assert st.autograd.gradcheck(run, (*floats, *params))
    finally:
        for name, p in saved.items():
            path, _, leaf = name.rpartition(".")
            module.get_submodule(path)._parameters[leaf] = p


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normed(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
