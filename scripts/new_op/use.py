"""The op from Python: a function and a method, with its default and its gradient; mypy reads this file too."""

import math

import strata as st

x: st.Tensor = st.tensor([0.0, 0.5], dtype=st.float64, requires_grad=True)
y: st.Tensor = st.snake(x, a=2.0)
assert abs(y.tolist()[1] - (0.5 + math.sin(1.0) ** 2 / 2)) < 1e-12
assert x.detach().snake().tolist()[0] == 0.0
y.sum().backward()
assert x.grad is not None and abs(x.grad.tolist()[1] - (1 + math.sin(2.0))) < 1e-12
assert "Ziyin" in (st.snake.__doc__ or ""), st.snake.__doc__
print("Python:", y.tolist())
