"""`python -m strata.torch`: programs that say `import torch`, unedited; and files that PyTorch wrote of its optimizers."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import strata as st
from strata import nn


def _run(*arguments, folder=None, code=0):
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "strata.torch", *arguments], cwd=folder, capture_output=True, text=True,
                          timeout=120, env={**os.environ, "PYTHONPATH": str(pathlib.Path(st.__file__).parents[1])})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_script_runs_unedited(tmp_path):
    (tmp_path / "helper.py").write_text("import torch\nscale = torch.tensor(2.0)\n")
    (tmp_path / "script.py").write_text('''
import sys
import torch
import torch.nn as nn, torch.nn.functional as F
import torch.backends.cudnn as cudnn
import torch.utils.data.dataloader
from torch import optim, Tensor
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import StepLR
from torch.autograd.function import Function
from torch.utils._pytree import tree_map
from torch.distributions.normal import Normal
from helper import scale
import strata

assert torch is strata and nn is strata.nn and __name__ == "__main__" and torch.nn.Module is nn.Module and cudnn.enabled in (True, False)
assert strata.__spec__.name == "strata" and isinstance(torch.ones(1), Tensor) and torch.utils.data.dataloader.DataLoader is torch.utils.data.DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 1)
    def forward(self, x):
        return F.relu(self.fc(x))

if __name__ == "__main__":
    print(sys.argv[1:], __file__.endswith("script.py"), Net.__module__, (scale * 3).item(), issubclass(Function, object))
''')
    assert _run(str(tmp_path / "script.py"), "--lr", "1") == "['--lr', '1'] True __main__ 6.0 True\n"
    assert _run("-m", "helper", folder=tmp_path) == ""
    assert _run("-c", "import torch, sys; print(torch.ones(2).sum().item(), sys.argv)", "a") == "2.0 ['-c', 'a']\n"


def test_types_print_as_pytorchs(tmp_path):
    (tmp_path / "show.py").write_text('''
import torch
x = torch.zeros(2, 3, dtype=torch.float64)
print(torch.float32, repr(x.dtype), x.shape, torch.tensor([1.5], dtype=torch.float64), torch.channels_last, sep="; ")
''')
    assert _run(str(tmp_path / "show.py")) == (
        "torch.float32; torch.float64; torch.Size([2, 3]); tensor([1.5000], dtype=torch.float64); torch.channels_last\n")
    assert str(st.float32) == "strata.float32"  # without PyTorch's name


def test_errors_are_the_programs_own(tmp_path):
    (tmp_path / "wrong.py").write_text("import torch\ndef f():\n    return torch.ones(2) @ torch.ones(3)\nf()\n")
    text = _run(str(tmp_path / "wrong.py"), code=1)
    assert text.startswith("Traceback") and 'wrong.py", line 4' in text and 'wrong.py", line 3, in f' in text and "strata/torch" not in text
    assert "can't open file" in _run(str(tmp_path / "none.py"), code=1) and "usage" not in _run("-c", "import sys; sys.exit(3)", code=3)
    for name, reason in [("torch.onnx", "safetensors"), ("torch.fx", "hooks of modules"), ("torch.sparse", "no sparse"), ("torch.nonsense", "not there")]:
        text = _run("-c", f"import {name}", code=1)
        assert f"ModuleNotFoundError: {name}" in text and reason in text


# What PyTorch 2.15 prints last.
PRINTED = {"gcn": [0.6128041744, 0.7], "pinn": [-0.26932465503498365], "style": [0.98883998]}


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_training_scripts_print_pytorchs_numbers(name):
    last = _run(str(pathlib.Path(__file__).parent / "scripts" / f"{name}.py")).splitlines()[-1].split()
    assert last[0] == "RESULT"
    np.testing.assert_allclose([float(v) for v in last[1:]], PRINTED[name], rtol=2e-4)


# What PyTorch 2.15 keeps after two steps of lr 0.1 from [1, -2] with gradients [0.5, 1] and [-0.25, 2], and where the parameters are
# after a third of [1, 1].
KEPT = {
    # The same moments: what AdamW does to the weights is another thing.
    "AdamW": ({"step": 2.0, "exp_avg": [0.02, 0.29], "exp_avg_sq": [0.00031225, 0.004999]}, None),
    "Adam": ({"step": 2.0, "exp_avg": [0.02, 0.29], "exp_avg_sq": [0.00031225, 0.004999]}, [0.8266541, -2.2943993]),
    "RMSprop": ({"step": 2.0, "square_avg": [0.003100, 0.0499]}, None),
    "Adagrad": ({"step": 2.0, "sum": [0.3125, 5.0]}, None),
    "NAdam": ({"step": 2.0, "mu_product": 0.2026, "exp_avg": [0.02, 0.29], "exp_avg_sq": [0.00031225, 0.004999]}, None),
}


def _after(kind, gradients, state=None, start=(1.0, -2.0)):
    p = nn.Parameter(st.tensor(list(start)))
    optimizer = getattr(st.optim, kind)([p], lr=0.1)
    if state is not None:
        optimizer.load_state_dict(state)
    for g in gradients:
        p.grad = st.tensor(g)
        optimizer.step()
    return p, optimizer


@pytest.mark.parametrize("kind", sorted(KEPT))
def test_the_state_has_pytorchs_layout(kind):
    gradients = [[0.5, 1.0], [-0.25, 2.0]]
    p, optimizer = _after(kind, gradients)
    state = optimizer.state_dict()["state"][0]
    wanted, _ = KEPT[kind]
    assert set(state) == set(wanted) and state["step"].dtype == st.float32 and state["step"].shape == ()
    for name, value in wanted.items():
        np.testing.assert_allclose(state[name].numpy(), value, rtol=2e-3)
    # As a file of PyTorch's: step f32, and the options that it writes beside its own.
    group = {**optimizer.state_dict()["param_groups"][0], "foreach": None, "fused": None, "capturable": False}
    q, again = _after(kind, [[1.0, 1.0]], {"state": {0: state}, "param_groups": [group]}, p.tolist())
    whole, _ = _after(kind, [*gradients, [1.0, 1.0]])
    assert q.tolist() == whole.tolist() and again.state_dict()["state"][0]["step"].item() == 3


def test_muons_scale_is_pytorchs():
    g = st.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    moved = {}
    for scale in (None, "original", "match_rms_adamw"):
        p = nn.Parameter(st.zeros(8, 2))
        optimizer = st.optim.Muon([p], lr=1.0, weight_decay=0.0) if scale is None else st.optim.Muon([p], lr=1.0, weight_decay=0.0, adjust_lr_fn=scale)
        p.grad = g
        optimizer.step()
        moved[scale] = -p[0, 0].item()
    assert moved[None] == moved["original"] and moved[None] / moved["match_rms_adamw"] == pytest.approx(2 / (0.2 * 8**0.5), rel=1e-5)


def _other(value, lib):
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor) and lib is st:
        return st.tensor(value.detach().numpy().copy(), dtype=getattr(st, str(value.dtype).partition(".")[2]))
    if isinstance(value, st.Tensor) and lib is torch:
        return torch.from_numpy(value.detach().numpy().copy())
    if isinstance(value, dict):
        return {k: _other(v, lib) for k, v in value.items()}
    return type(value)(_other(v, lib) for v in value) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Adafactor", "ASGD", "Rprop", "LBFGS"])
def test_state_goes_both_ways(kind):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: its own state is exchanged where it is")
    random = np.random.default_rng(0)
    weights, gradients = random.standard_normal((4, 3)).astype("f"), random.standard_normal((6, 4, 3)).astype("f")
    options = {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "RMSprop": {"momentum": 0.5, "centered": True}, "LBFGS": {"max_iter": 3}}.get(kind, {})

    def run(lib, p, optimizer, part):
        for g in part:
            def closure():
                p.grad = lib.from_numpy(g.copy()) + p.detach()
                return (p.detach() * p.detach()).sum()
            closure()
            optimizer.step(closure)

    def made(lib, values):
        p = lib.nn.Parameter(lib.from_numpy(values.copy()))
        return p, getattr(lib.optim, kind)([p], lr=0.05, **options)

    for first, second in ((torch, st), (st, torch)):
        p, optimizer = made(first, weights)
        run(first, p, optimizer, gradients[:3])
        q, other = made(second, p.detach().numpy())
        other.load_state_dict(_other(optimizer.state_dict(), second))
        run(first, p, optimizer, gradients[3:])
        run(second, q, other, gradients[3:])
        np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=2e-4, atol=2e-5)
