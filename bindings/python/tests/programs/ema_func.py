"""Averaged weights, autograd functions, Jacobians, functional calls."""

import copy

from strata.optim.swa_utils import SWALR, AveragedModel, update_bn

import strata as st
import strata.nn as nn


class EMA:
    def __init__(self, model, decay=0.9):
        self.ema = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.ema.parameters():
            p.requires_grad_(False)

    @st.no_grad()
    def update(self, model):
        for e, p in zip(self.ema.state_dict().values(), model.state_dict().values()):
            if e.dtype.is_floating_point:
                e.mul_(self.decay).add_(p.detach(), alpha=1 - self.decay)


class LegendrePolynomial3(st.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


class STE(st.autograd.Function):
    @staticmethod
    def forward(ctx, x, t):
        ctx.mark_non_differentiable()
        ctx.t = t
        return (x > t).float()

    @staticmethod
    def backward(ctx, g):
        return g.clone().clamp_(-1, 1), None


class RevGrad(st.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.alpha, None


model = fill(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ELU(), nn.Linear(8, 1)))
ema = EMA(model)
swa = AveragedModel(model)
ema2 = AveragedModel(model, multi_avg_fn=st.optim.swa_utils.get_ema_multi_avg_fn(0.9))
opt = st.optim.SGD(model.parameters(), lr=0.1)
sw = SWALR(opt, swa_lr=0.05, anneal_epochs=2)
x, y = st.from_numpy(F32(16, 4)), st.from_numpy(F32(16, 1))
for i in range(4):
    opt.zero_grad()
    h = LegendrePolynomial3.apply(model(x))
    h = h + STE.apply(h, 0.1) + RevGrad.apply(h, 0.5)
    loss = (h - y).pow(2).mean()
    loss.backward()
    opt.step()
    ema.update(model)
    swa.update_parameters(model)
    ema2.update_parameters(model)
    sw.step()
    out(f"l{i}", loss)
    out(f"lr{i}", opt.param_groups[0]["lr"])
update_bn([(x, y)], swa)
out("ema", ema.ema(x))
out("swa", swa(x))
out("e2", ema2.module[0].weight)
out("n", swa.n_averaged)
P3 = LegendrePolynomial3.apply
a = st.full((), 0.0, requires_grad=True)
b = st.full((), -1.0, requires_grad=True)
c = st.full((), 0.3, requires_grad=True)
t = st.linspace(-np.pi, np.pi, 200)
yy = st.sin(t)
for i in range(10):
    yp = a + b * P3(c + 0.1 * t)
    loss = (yp - yy).pow(2).sum()
    loss.backward()
    with st.no_grad():
        a -= 5e-6 * a.grad
        b -= 5e-6 * b.grad
        c -= 5e-6 * c.grad
        a.grad = None
        b.grad = None
        c.grad.zero_()
out("abc", [a.item(), b.item(), c.item()])
w = st.randn(3, 3, dtype=st.double, requires_grad=True)
assert st.autograd.gradcheck(P3, (w,), eps=1e-6, atol=1e-4)
J = st.autograd.functional.jacobian(lambda v: v**3, st.tensor([1.0, 2.0]))
out("J", J)
H = st.autograd.functional.hessian(lambda v: (v**3).sum(), st.tensor([1.0, 2.0]))
out("H", H)
params = {k: v.detach() * 2 for k, v in model.named_parameters()}
model.eval()
out("fc", st.func.functional_call(model, params, (x,)))
