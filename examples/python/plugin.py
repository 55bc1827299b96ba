"""An op of one's own, written in C: compiles examples/plugin/squared_relu, loads it, trains with it.

    python examples/python/plugin.py [LIBRARY]

Wants a C compiler, or a LIBRARY that was compiled before."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Callable

import strata as st
from strata import nn


def build(folder: str) -> str:
    root = pathlib.Path(__file__).resolve().parents[2]
    source = root / "examples" / "plugin" / "squared_relu" / "squared_relu.c"
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        sys.exit("skipped: no C compiler is here; give a LIBRARY")
    library = os.path.join(folder, "squared_relu.so")
    subprocess.run([compiler, "-std=c99", "-O2", "-shared", "-fPIC", f"-I{root}", str(source), "-o", library], check=True)
    return library


class Layer(nn.Module):
    """y = op(linear(x), bias): the plugin's op is called as any other."""

    def __init__(self, inputs: int, outputs: int, op: Callable[..., st.Tensor]) -> None:
        super().__init__()
        self.op = op
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(st.zeros(outputs))

    def forward(self, x: st.Tensor) -> st.Tensor:
        return self.op(self.linear(x), self.bias)


with tempfile.TemporaryDirectory() as folder:
    plugin = st.load_plugin(sys.argv[1] if len(sys.argv) > 1 else build(folder))
    print(f"{plugin.name} {plugin.version}: {', '.join(plugin.ops)}")
    # The same as st.ops.squared_relu, which a type checker cannot know of.
    squared_relu: Callable[..., st.Tensor] = getattr(st.ops, "squared_relu")
    print(squared_relu.__doc__)

    x = st.randn(3, 2, dtype=st.float64, requires_grad=True)
    b = st.randn(2, dtype=st.float64, requires_grad=True)
    assert st.autograd.gradcheck(squared_relu, (x, b))

    st.manual_seed(1)
    net = nn.Sequential(Layer(2, 16, squared_relu), nn.Linear(16, 1))
    optimizer = st.optim.AdamW(net.parameters(), lr=0.02)
    points = st.rand(256, 2) * 2 - 1
    target = (points * points).sum([1], True)
    for step in range(400):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(points), target)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.5f}")
    assert loss.item() < 0.01
