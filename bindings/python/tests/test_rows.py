"""What published systems were shown to do, as small programs: each test is named after the system whose claim it
repeats. bench/rows.py prints the times and the memory that go with them."""

import os
import re

import numpy as np
import pytest

import strata as st
import strata.nn.functional as F
from strata import _core, nn

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not st.cuda.is_available(),
                                                                reason=f"no card: {st.cuda.unavailable_reason()}"))]
each_device = pytest.mark.parametrize("device", DEVICES)


class Ponder(nn.Module):
    """Layers are repeated until the state is large enough, which the numbers say, and branch by sign."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(8, 16), nn.Linear(16, 1)
        self.again, self.other = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        h, rounds = st.tanh(self.enter(x)), 0
        while h.norm().item() < 12 and rounds < 6:
            h = h + (st.relu(self.again(h)) if h.sum() > 0 else st.tanh(self.other(h)))
            rounds += 1
        return self.leave(h).squeeze(1), rounds


def _pondered(device):
    st.manual_seed(3)
    model = Ponder().to(device)
    optimizer = st.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rng = np.random.default_rng(0)
    losses, rounds = [], []
    for i in range(60):
        x = rng.normal(size=(16, 8)).astype(np.float32) * (0.2 + i % 3)
        x, want = st.from_numpy(x).to(device), st.from_numpy(np.tanh(x[:, 0] - x[:, 1])).to(device)
        y, n = model(x)
        loss = F.mse_loss(y, want)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        rounds.append(n)
    return losses, rounds


@each_device
def test_pytorch_programs_whose_control_flow_depends_on_data_train(device):
    """PyTorch (Paszke et al., NeurIPS 2019): the program is the model, whatever way it takes."""
    losses, rounds = _pondered(device)
    assert len(set(rounds)) > 1  # it did take several ways
    assert sum(losses[-9:]) < 0.6 * sum(losses[:9])
    model = Ponder().double()
    x = st.randn(3, 8, dtype=st.float64, requires_grad=True)
    assert st.autograd.gradcheck(lambda v: model(v)[0], x)
    if device == "cuda":
        expected, same_rounds = _pondered("cpu")
        assert rounds == same_rounds
        np.testing.assert_allclose(losses, expected, rtol=1e-3)


def _plugin(device):
    """(The plugin's op, the same by ops of the library)."""
    path = os.environ.get("STRATA_CUDA_PLUGIN" if device == "cuda" else "STRATA_PLUGIN", "")
    if not os.path.exists(path):
        pytest.skip("STRATA_PLUGIN (on a card STRATA_CUDA_PLUGIN) names no library: examples/plugin has them")
    st.load_plugin(path)
    if device == "cuda":
        return lambda x: st.soft_cap(x, limit=3.0), lambda x: 3 * st.tanh(x / 3)
    return lambda x: st.squared_relu(x, st.zeros(x.shape[-1])), lambda x: st.relu(x) ** 2


class Activation(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Block(nn.Module):
    def __init__(self, dim, activation):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), Activation(activation), nn.Linear(2 * dim, dim))

    def forward(self, x, mask=None):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, stride=4)
        self.places = nn.Parameter(0.02 * st.randn(1, 16, 32))
        self.blocks = nn.ModuleList([Block(32, activation) for _ in range(2)])
        self.head = nn.Linear(32, 5)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class MiniGpt(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 32), nn.Embedding(16, 32)
        self.blocks = nn.ModuleList([Block(32, activation) for _ in range(2)])
        self.head = nn.Linear(32, 20)

    def forward(self, tokens):
        t = tokens.shape[1]
        x = self.words(tokens) + self.places(st.arange(t, device=tokens.device))
        mask = st.ones(t, t, dtype=st.bool, device=tokens.device).triu(1)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x).flatten(0, 1)


def _trained(kind, activation, device):
    st.manual_seed(1)
    model = kind(activation).to(device)
    optimizer = st.optim.AdamW(model.parameters(), lr=3e-3)
    rng = np.random.default_rng(2)
    losses = []
    for _ in range(8):
        if kind is ViT:
            classes = rng.integers(0, 5, 8)
            x = rng.normal(size=(8, 3, 16, 16)).astype(np.float32) + classes[:, None, None, None].astype(np.float32)
        else:
            x = (np.arange(17) + rng.integers(0, 20, 8)[:, None]) % 20
            x, classes = x[:, :-1], x[:, 1:].reshape(-1)
        loss = F.cross_entropy(model(st.tensor(x.tolist()).to(device)), st.tensor(classes.tolist()).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@each_device
@pytest.mark.parametrize("kind", [ViT, MiniGpt])
def test_vibetensor_networks_train_alike_on_every_device(kind, device):
    """VibeTensor: small networks train on CPU and CUDA, and the losses agree."""
    losses = _trained(kind, st.relu, device)
    assert losses[-1] < 0.9 * losses[0]
    np.testing.assert_allclose(losses, _trained(kind, st.relu, "cpu"), rtol=5e-3)


@each_device
@pytest.mark.parametrize("kind", [ViT, MiniGpt])
def test_vibetensor_a_plugins_op_is_dispatched_and_differentiated_in_them(kind, device):
    """VibeTensor: a kernel from outside takes part like one of the library's."""
    own, same = _plugin(device)
    losses = _trained(kind, own, device)
    assert losses[-1] < 0.9 * losses[0]
    np.testing.assert_allclose(losses, _trained(kind, same, device), rtol=1e-3)


class Tower(nn.Module):
    def __init__(self, dim=128, layers=6):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
                                     for _ in range(layers)])
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def freeze(model, pattern):
    """What a user writes: parameters whose name matches want no gradient."""
    for name, p in model.named_parameters():
        p.requires_grad_(not re.match(pattern, name))


def _gradients(model, x, y, device):
    """The gradients by name, and the bytes that forward and backward took beside what was there."""
    model.zero_grad()
    place = st.device(device)
    _core.memory_reset_peak(place)
    before = _core.memory_stats(place)["live_total"]
    F.cross_entropy(model(x), y).backward()
    peak = _core.memory_stats(place)["peak_total"] - before
    return {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}, peak


@each_device
def test_pockengine_frozen_layers_cost_neither_gradients_nor_memory(device):
    """PockEngine (Zhu et al., MICRO 2023): layers frozen by name leave the backward pass, and nothing else changes."""
    st.manual_seed(5)
    model = Tower().to(device)
    x, y = st.randn(64, 128, device=device), st.randint(0, 10, (64,), device=device)
    everything, whole = _gradients(model, x, y, device)
    freeze(model, r"layers\.[0-3]\.")  # the first layers: nothing below the fifth is differentiated
    some, less = _gradients(model, x, y, device)
    assert set(some) == {name for name in everything if not re.match(r"layers\.[0-3]\.", name)}
    for name, g in some.items():
        assert g.equal(everything[name]), name
    assert less < 0.6 * whole
    freeze(model, r".*weight$")  # biases alone: the way down stays, the weights' gradients go
    biases, least = _gradients(model, x, y, device)
    assert set(biases) == {name for name in everything if name.endswith("bias")}
    assert all(g.equal(everything[name]) for name, g in biases.items()) and least < whole


def _by_steps(cell, kind, x):
    state = None
    outputs = []
    for step in x.unbind(0):
        state = cell(step, state)
        outputs.append(state[0] if kind == "LSTM" else state)
    return st.stack(outputs)


@each_device
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_flashrnn_a_thousand_steps_are_the_steps_one_by_one(kind, device):
    """FlashRNN (Poeppel et al., 2024): the fused recurrence gives what the cell gives, and its gradients."""
    st.manual_seed(7)
    layer, cell = getattr(nn, kind)(24, 32), getattr(nn, f"{kind}Cell")(24, 32)
    cell.load_state_dict({name.removesuffix("_l0"): p for name, p in layer.state_dict().items()})
    layer, cell = layer.to(device), cell.to(device)
    x = st.randn(1024, 4, 24, device=device)
    weight = st.randn(1024, 4, 32, device=device)
    with st.backends.cudnn.flags(allow_tf32=False):  # cells multiply whole f32 operands
        y, expected = layer(x)[0], _by_steps(cell, kind, x)
        np.testing.assert_allclose(y.detach().cpu().numpy(), expected.detach().cpu().numpy(), atol=2e-5)
        (y * weight).sum().backward()
        (expected * weight).sum().backward()
    for name, p in cell.named_parameters():
        got, want = dict(layer.named_parameters())[f"{name}_l0"].grad.cpu().numpy(), p.grad.cpu().numpy()
        np.testing.assert_allclose(got, want, atol=2e-4 * np.abs(want).max())


@each_device
def test_onesweep_sorted_keys_are_those_of_a_sort_by_comparison(device):
    """Onesweep (Adinets and Merrill, 2022): keys of 32 bits, all of them, each in its place. On a card 256M of them."""
    n = 1 << (28 if device == "cuda" else 20)
    keys = np.random.default_rng(11).integers(0, 1 << 32, n, dtype=np.uint32)
    signed = (keys ^ np.uint32(1 << 31)).view(np.int32)  # the order of unsigned keys, in a dtype that there is
    given = st.from_numpy(signed).to(device)
    values, places = st.sort(given)
    got = values.cpu().numpy()
    assert bool((given[places] == values).all())
    del given, values, places
    assert np.array_equal(got.view(np.uint32) ^ np.uint32(1 << 31), np.sort(keys))


@each_device
@pytest.mark.parametrize("k", [1, 10, 100, 1000, 1024])
def test_faiss_k_selection_is_the_head_of_a_sort(k, device):
    """Faiss (Johnson et al., 2017): the k largest of rows of a million, k up to 1024."""
    x = st.randn(4 if device == "cuda" else 1, 1_000_000, device=device)
    x[0, 500:700] = 2.5  # ties
    for largest in (True, False):
        values, places = st.topk(x, k, 1, largest=largest)
        expected = st.sort(x, 1, descending=largest)[0][:, :k]
        assert values.equal(expected) and x.gather(1, places).equal(values)
        assert all(len(set(row)) == k for row in places.cpu().tolist())


@each_device
def test_fastattention_without_matrix_units_agrees_with_separate_ops(device):
    """FastAttention: a negative scale, which kernels with matrix units do not take, and heads of 100, which are padded for
    them, both within 1e-3 of the definition."""
    st.manual_seed(13)
    q, k, v = (st.randn(1, 2, 4096 if device == "cuda" else 300, 100, device=device) for _ in range(3))
    ordinary = F.scaled_dot_product_attention(-q, k, v, scale=-0.1).cpu().numpy()
    padded = F.scaled_dot_product_attention(q, k, v).cpu().numpy()
    q, k, v = (x.double() for x in (q, k, v))
    expected = (F.softmax(q @ k.transpose(-2, -1) * 0.1, -1) @ v).cpu().numpy()
    np.testing.assert_allclose(ordinary, expected, atol=1e-3)
    np.testing.assert_allclose(padded, expected, atol=1e-3)


@each_device
def test_weighted_convolution_weighs_the_taps(device):
    """Weighted convolution: each place of a window counts by a weight of its own, with gradients of all three operands."""
    st.manual_seed(17)
    x, w = st.randn(2, 3, 9, 8, dtype=st.float64, device=device), st.randn(4, 3, 3, 3, dtype=st.float64, device=device)
    taps = st.rand(3, 3, dtype=st.float64, device=device) + 0.5
    for t in (x, w, taps):
        t.requires_grad_()
    y = F.conv2d(x, w * taps, padding=1)
    padded = np.pad(x.detach().cpu().numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = sum(taps[i, j].item() * np.einsum("nchw,oc->nohw", padded[:, :, i:i + 9, j:j + 8], w[:, :, i, j].detach().cpu().numpy())
                   for i in range(3) for j in range(3))
    np.testing.assert_allclose(y.detach().cpu().numpy(), expected, atol=1e-12)
    assert st.autograd.gradcheck(lambda x, w, taps: F.conv2d(x, w * taps, padding=1), (x, w, taps))
