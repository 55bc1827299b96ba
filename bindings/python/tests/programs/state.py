"""state_dict surgery, partial loading, hooks for features."""

import os
from collections import OrderedDict

import strata as st
import strata.nn as nn


class Backbone(nn.Module):
    def __init__(self, n=10):
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict([("conv0", nn.Conv2d(3, 4, 3)), ("norm0", nn.BatchNorm2d(4)), ("relu0", nn.ReLU())])
        )
        self.features.add_module("conv1", nn.Conv2d(4, 4, 3))
        self.classifier = nn.Linear(4, n)
        self.register_buffer("mean", st.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1), persistent=False)

    def forward(self, x):
        return self.classifier(self.features(x - self.mean).mean((2, 3)))


m = fill(Backbone())
path = os.path.join(FOLDER, "model.safetensors")
st.save({"epoch": 3, "model_state_dict": m.state_dict(), "loss": 0.5, "args": {"lr": 0.1, "names": ["a", "b"]}}, path)
ck = st.load(path, map_location="cpu", weights_only=True)
n = Backbone()
r = n.load_state_dict(ck["model_state_dict"])
assert ck["epoch"] == 3 and ck["args"]["names"] == ["a", "b"]
print(r)
x = st.from_numpy(F32(2, 3, 8, 8))
out("same", n(x) - m(x))
sd = OrderedDict(("module." + k, v) for k, v in m.state_dict().items())
new = OrderedDict()
for k, v in sd.items():
    new[k.replace("module.", "")] = v
k = Backbone(5)
own = k.state_dict()
pre = {a: b for a, b in new.items() if a in own and own[a].size() == b.size()}
own.update(pre)
k.load_state_dict(own)
miss = k.load_state_dict(pre, strict=False)
out("nm", [len(miss.missing_keys), len(miss.unexpected_keys)])
del new["classifier.weight"]
try:
    k.load_state_dict(new)
except RuntimeError as e:
    assert "Missing key(s)" in str(e) and "size mismatch" in str(e), e
for name, p in k.named_parameters():
    if not name.startswith("classifier"):
        p.requires_grad = False
opt = st.optim.Adam(filter(lambda p: p.requires_grad, k.parameters()), lr=1e-3)
k.classifier = nn.Linear(k.classifier.in_features, 7)
out("shape", k(x).shape)
m.features[0] = nn.Conv2d(3, 4, 3, bias=False)
m.features.conv1.weight.data *= 0.5
del m.features.relu0
out("len", len(m.features))
print(m)
acts = {}


def get_activation(name):
    def hook(model, input, output):
        acts[name] = output.detach()

    return hook


h = n.features.conv0.register_forward_hook(get_activation("c0"))
h2 = [l.register_forward_hook(get_activation(nm)) for nm, l in n.named_modules() if isinstance(l, nn.BatchNorm2d)]
n.eval()
n(x)
out("c0", acts["c0"])
assert "features.norm0" in acts
h.remove()
[q.remove() for q in h2]
grads = []


class GradCAM:
    def __init__(self, layer):
        layer.register_forward_hook(self.f)
        layer.register_full_backward_hook(self.b)

    def f(self, m, i, o):
        self.a = o

    def b(self, m, gi, go):
        self.g = go[0]


cam = GradCAM(n.features.conv1)
s = n(x)
n.zero_grad()
s[st.arange(2), s.argmax(1)].sum().backward()
wts = cam.g.mean(dim=(2, 3), keepdim=True)
c = st.relu((wts * cam.a).sum(1))
c = c / c.flatten(1).max(1)[0].clamp_min(1e-8)[:, None, None]
out("cam", c)
sub = nn.Sequential(*list(n.children())[:-1])
out("sub", sub(x).shape)
out("np", [p.numel() for p in n.parameters()])
total = sum(p.nelement() * p.element_size() for p in n.parameters())
out("bytes", total)
st.save(m.state_dict(), path)
sd = st.load(path)
out("keys", len(sd))
assert isinstance(sd["classifier.weight"], st.Tensor)
n.register_parameter("scale", nn.Parameter(st.ones(1)))
n.double()
assert n.scale.dtype == st.float64
n.to(st.float32)
assert n.get_parameter("features.conv0.weight").shape == st.Size([4, 3, 3, 3])
assert isinstance(x.shape, st.Size)
p = nn.utils.parameters_to_vector(n.parameters())
out("pv", p.sum())
nn.utils.vector_to_parameters(p, n.parameters())
t = st.save([st.ones(2), {"k": st.zeros(1)}], path)
l = st.load(path)
out("l", l[0])
st.save(st.arange(3), path)
out("ten", st.load(path))
