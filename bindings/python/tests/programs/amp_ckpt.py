"""Mixed precision and checkpoints of activations."""

from strata.utils.checkpoint import checkpoint, checkpoint_sequential

import strata as st
import strata.nn as nn

net = fill(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)))
x, y = st.from_numpy(F32(16, 8)), st.from_numpy(F32(16, 1))
scaler = st.amp.GradScaler("cpu", enabled=True, init_scale=2.0**8)
opt = st.optim.AdamW(net.parameters(), lr=1e-2)
accum = 2
for i in range(4):
    with st.autocast(device_type="cpu", dtype=st.bfloat16):
        o = net(x)
        assert o.dtype == st.bfloat16
        loss = nn.functional.mse_loss(o.float(), y) / accum
    scaler.scale(loss).backward()
    if (i + 1) % accum == 0:
        scaler.unscale_(opt)
        st.nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
assert scaler.get_scale() == 256.0
x.requires_grad_()
a = checkpoint(net, x, use_reentrant=False).sum()
a.backward()
g1 = x.grad.clone()
x.grad = None
net.zero_grad()
checkpoint_sequential(net, 2, x, use_reentrant=False).sum().backward()
out("g", (x.grad - g1).abs().max())
w = fill(nn.Linear(8, 4), 5)


def run_fn(m):
    def custom(*inputs):
        return m(*inputs)

    return custom


checkpoint(run_fn(w), x, use_reentrant=True).sum().backward()
out("w", w.weight.grad)
half = net.bfloat16()
assert next(half.parameters()).dtype == st.bfloat16
out("h", half(x.detach().bfloat16()).float().shape)
with st.autocast("cpu", dtype=st.bfloat16):
    m = st.mm(st.ones(2, 2), st.ones(2, 2))
    assert m.dtype == st.bfloat16
    with st.autocast("cpu", enabled=False):
        assert st.mm(st.ones(2, 2), st.ones(2, 2)).dtype == st.float32
    s = st.softmax(m, -1)
    assert s.dtype in (st.float32, st.bfloat16)


@st.autocast("cpu", dtype=st.bfloat16)
def f(a):
    return a @ a


assert f(st.ones(2, 2)).dtype == st.bfloat16
