"""Optimizers and schedules; an optimizer of one's own; L-BFGS."""

from strata.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    MultiplicativeLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
)

import strata as st
import strata.nn as nn


def run(make, n=8, opt=st.optim.SGD, **k):
    p = nn.Parameter(st.ones(3))
    o = opt([p], lr=0.1, **k)
    s = make(o)
    lrs = []
    for i in range(n):
        o.zero_grad()
        (p**2).sum().backward()
        o.step()
        s.step()
        lrs.append(o.param_groups[0]["lr"])
    return lrs, p


for name, mk in dict(
    lam=lambda o: LambdaLR(o, lr_lambda=lambda e: 0.95**e),
    one=lambda o: OneCycleLR(o, max_lr=0.5, total_steps=8),
    onep=lambda o: OneCycleLR(o, max_lr=0.5, steps_per_epoch=4, epochs=2, anneal_strategy="linear", three_phase=True),
    cawr=lambda o: CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2),
    exp=lambda o: ExponentialLR(o, gamma=0.9),
    cyc=lambda o: CyclicLR(o, base_lr=0.01, max_lr=0.1, step_size_up=3, mode="triangular2"),
    poly=lambda o: PolynomialLR(o, total_iters=5, power=2),
    const=lambda o: ConstantLR(o, factor=0.5, total_iters=3),
    mul=lambda o: MultiplicativeLR(o, lr_lambda=lambda e: 0.9),
    chain=lambda o: ChainedScheduler([ConstantLR(o, factor=0.1, total_iters=2), ExponentialLR(o, gamma=0.9)]),
).items():
    lrs, p = run(mk, momentum=0.9)
    out(name, lrs)
    out(name + "p", p)
for o in ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Rprop", "ASGD"):
    lrs, p = run(lambda q: ExponentialLR(q, gamma=0.9), 6, getattr(st.optim, o))
    out(o, p)
lrs, p = run(lambda q: ExponentialLR(q, gamma=0.9), 6, st.optim.Adam, weight_decay=0.1, amsgrad=True)
out("ams", p)
lrs, p = run(lambda q: ExponentialLR(q, gamma=0.9), 6, st.optim.SGD, maximize=True)
out("maxi", p)
lrs, p = run(lambda q: ExponentialLR(q, gamma=0.9), 6, st.optim.RMSprop, centered=True, momentum=0.5)
out("cent", p)
x = st.tensor([-1.2, 1.0], requires_grad=True)
lb = st.optim.LBFGS([x], lr=1, max_iter=30, line_search_fn="strong_wolfe")


def closure():
    lb.zero_grad()
    f = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    f.backward()
    return f


for _ in range(3):
    lb.step(closure)
out("rosen", x)
net = nn.Linear(2, 2)
opt = st.optim.SGD([{"params": [net.weight]}, {"params": [net.bias], "lr": 1e-3}], lr=1e-2, momentum=0.9)
pl = ReduceLROnPlateau(opt, mode="min", factor=0.1, patience=1, threshold=1e-4, min_lr=1e-6)
for v in [1.0, 0.9, 0.9, 0.9, 0.9]:
    pl.step(v)
out("pl", [g["lr"] for g in opt.param_groups])
opt.add_param_group({"params": [nn.Parameter(st.zeros(2))], "lr": 5.0})
sd = opt.state_dict()
sc = pl.state_dict()
pl.load_state_dict(sc)
opt.load_state_dict(sd)
for g in opt.param_groups:
    g["lr"] = g["lr"] * 0.5
out("lrs", [g["lr"] for g in opt.param_groups])
print(repr(opt)[:20])


class MyOpt(st.optim.Optimizer):
    def __init__(self, params, lr=1e-3, beta=0.9):
        if lr < 0:
            raise ValueError("bad")
        super().__init__(params, dict(lr=lr, beta=beta))

    @st.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with st.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["m"] = st.zeros_like(p, memory_format=st.preserve_format)
                state["step"] += 1
                state["m"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                p.add_(state["m"].sign(), alpha=-group["lr"])
        return loss


lrs, p = run(lambda q: ExponentialLR(q, gamma=0.9), 6, MyOpt)
out("my", p)
pp = st.zeros(2, requires_grad=True)
mo = MyOpt([pp])
pp.grad = st.ones(2)
mo.step()
s = mo.state_dict()
mo.load_state_dict(s)
out("st", s["state"][0]["m"])
