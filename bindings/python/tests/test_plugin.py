import os

import pytest

import strata as st

PATH = os.environ.get("STRATA_PLUGIN", "")


def test_what_is_no_plugin(tmp_path):
    with pytest.raises(st.PluginError):
        st.load_plugin(tmp_path / "nothing.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ImportError):
        st.load_plugin(tmp_path / "text.so")
    assert not hasattr(st, "squared_relu") or PATH


def test_a_plugins_op_is_an_op():
    if not os.path.exists(PATH):
        pytest.skip("STRATA_PLUGIN names no library: examples/plugin/squared_relu is one")
    plugin = st.load_plugin(PATH)
    assert plugin.ops == ("squared_relu",) and st.load_plugin(PATH) == plugin
    x = st.tensor([-1.0, 2.0], requires_grad=True)
    bias = st.tensor([0.0, 1.0])
    y = st.squared_relu(x, bias)
    expected = st.relu(x.detach() + bias) ** 2
    assert y.tolist() == expected.tolist() == x.squared_relu(bias).tolist() == st.ops.squared_relu(x=x, bias=bias).tolist()
    y.sum().backward()
    assert x.grad.tolist() == [0, 6] and "squared_relu" in st.squared_relu.__doc__
    v = st.tensor([0.5, 1.5], dtype=st.float64, requires_grad=True)
    assert st.autograd.gradcheck(lambda t: st.squared_relu(t, bias.double(), scale=2.0), v)
    with pytest.raises(TypeError, match="squared_relu"):
        st.squared_relu("a", bias)
    with pytest.raises(st.StrataError, match="squared_relu"):
        st.squared_relu(st.ones(2, 3), st.ones(5))


class Feed(st.nn.Module):
    """A block's feed-forward part, its activation the plugin's op or the same of the engine's own."""

    def __init__(self, dim, plugged):
        super().__init__()
        self.up, self.down = st.nn.Linear(dim, 2 * dim, bias=False), st.nn.Linear(2 * dim, dim)
        self.bias, self.plugged = st.nn.Parameter(st.zeros(2 * dim)), plugged

    def forward(self, x):
        x = self.up(x)
        return self.down(st.squared_relu(x, self.bias) if self.plugged else st.relu(x + self.bias) ** 2)


class Net(st.nn.Module):
    """A small GPT (tokens) or ViT (images in patches of 4)."""

    def __init__(self, vision, plugged, dim=32, classes=10):
        super().__init__()
        self.vision = vision
        self.embed = st.nn.Conv2d(3, dim, 4, stride=4) if vision else st.nn.Embedding(classes, dim)
        self.place = st.nn.Parameter(st.zeros(16, dim))
        self.norms = st.nn.ModuleList([st.nn.LayerNorm(dim) for _ in range(4)])
        self.attend = st.nn.ModuleList([st.nn.MultiheadAttention(dim, 4, batch_first=True) for _ in range(2)])
        self.feed = st.nn.ModuleList([Feed(dim, plugged) for _ in range(2)])
        self.head = st.nn.Linear(dim, classes)

    def forward(self, x):
        x = (self.embed(x).flatten(2).transpose(1, 2) if self.vision else self.embed(x)) + self.place
        mask = None if self.vision else st.nn.Transformer.generate_square_subsequent_mask(16)
        if mask is not None:
            mask = mask.to(x.device)
        for i, (attend, feed) in enumerate(zip(self.attend, self.feed)):
            y = self.norms[2 * i](x)
            x = x + attend(y, y, y, attn_mask=mask, need_weights=False)[0]
            x = x + feed(self.norms[2 * i + 1](x))
        return self.head(x.mean(1) if self.vision else x)


@pytest.mark.parametrize("vision", [False, True], ids=["gpt", "vit"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_networks_train_with_a_plugins_op(vision, device):
    if not os.path.exists(PATH):
        pytest.skip("STRATA_PLUGIN names no library: examples/plugin/squared_relu is one")
    if device == "cuda" and not st.cuda.is_available():
        pytest.skip("no CUDA device here")
    st.load_plugin(PATH)
    losses = []
    for plugged in (True, False):
        st.manual_seed(3)
        net = Net(vision, plugged).to(device)
        optimizer = st.optim.AdamW(net.parameters(), lr=3e-3)
        x = (st.randn(8, 3, 16, 16) if vision else st.arange(8 * 16).reshape(8, 16) % 10).to(device)
        y = (st.arange(8) % 10 if vision else (st.arange(8 * 16).reshape(8, 16) * 3 + 1) % 10).to(device)
        losses.append([])
        for _ in range(25):
            loss = st.nn.functional.cross_entropy(net(x).reshape(-1, 10), y.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3, abs=1e-4)
    assert losses[0][-1] < 0.5 * losses[0][0]
