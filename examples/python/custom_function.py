"""A function with a gradient of its own, a module that uses it, hooks, and a check of the gradient."""

from typing import Any

import strata as st
from strata import nn


class ClippedExp(st.autograd.Function):
    """exp(x), whose gradient is at most `limit`."""

    @staticmethod
    def forward(ctx: Any, x: st.Tensor, limit: float) -> st.Tensor:
        y = st.exp(x)
        ctx.save_for_backward(y)
        ctx.limit = limit
        return y

    @staticmethod
    def backward(ctx: Any, grad: st.Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return grad * y.clamp(max=ctx.limit), None


class Positive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: st.Tensor) -> st.Tensor:
        y: st.Tensor = ClippedExp.apply(self.linear(x), 10.0)
        return y


x = st.tensor([0.0, 1.0, 5.0], requires_grad=True)
ClippedExp.apply(x, 10.0).sum().backward()
print("gradients", x.grad)
assert x.grad is not None and x.grad.tolist()[2] == 10.0

# Below the limit the gradient is exp's own: checked against differences, in double precision.
small = st.randn(4, dtype=st.float64, requires_grad=True)
assert st.autograd.gradcheck(lambda t: ClippedExp.apply(t, 1e9), (small,))

model = Positive()
model.register_full_backward_hook(lambda module, grad_in, grad_out: print("backward through", type(module).__name__))
model(st.randn(2, 3)).sum().backward()
assert model.linear.weight.grad is not None
