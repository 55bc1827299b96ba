# Losses with their deprecated arguments, weights, and at the ends of their domains; autocast's list.
import warnings

import strata as st
import strata.nn as nn
import strata.nn.functional as F

T = lambda *s: st.from_numpy(F32(*s))
OLD = ((None, None), (True, None), (False, None), (None, False), (False, False), (True, True), (None, True))

x, y, z = T(4, 5), T(4, 5), T(4, 5)
p, q = st.sigmoid(x), st.sigmoid(y)
signs = st.sign(T(4, 5))
classes = st.tensor([1, 0, 4, 2])
several = st.tensor([[0, 3, -1, 1, 2], [2, -1, 0, 0, 0], [1, 2, 3, -1, 4], [4, 0, 1, 2, 3]])
weight = T(5).abs() + 0.1
CALLS = {
    "cross_entropy": lambda **k: F.cross_entropy(x, classes, weight, ignore_index=4, label_smoothing=0.1, **k),
    "nll": lambda **k: F.nll_loss(F.log_softmax(x, 1), classes, weight, **k),
    "poisson": lambda **k: F.poisson_nll_loss(x, q, full=True, **k),
    "kl": lambda **k: F.kl_div(F.log_softmax(x, 1), q, **k),
    "bce": lambda **k: F.binary_cross_entropy(p, q, weight, **k),
    "bcel": lambda **k: F.binary_cross_entropy_with_logits(x, q, weight, pos_weight=weight, **k),
    "smooth": lambda **k: F.smooth_l1_loss(x, y, beta=0.7, **k),
    "l1": lambda **k: F.l1_loss(x, y, **k),
    "mse": lambda **k: F.mse_loss(x, y, **k),
    "ranking": lambda **k: F.margin_ranking_loss(x, y, signs, 0.3, **k),
    "hinge": lambda **k: F.hinge_embedding_loss(x, signs, 0.8, **k),
    "multilabel": lambda **k: F.multilabel_margin_loss(x, several, **k),
    "soft": lambda **k: F.soft_margin_loss(x, signs, **k),
    "multilabel soft": lambda **k: F.multilabel_soft_margin_loss(x, (signs > 0).float(), weight, **k),
    "cosine": lambda **k: F.cosine_embedding_loss(x, y, signs[:, 0], 0.2, **k),
    "multi": lambda **k: F.multi_margin_loss(x, classes, 2, 0.7, weight, **k),
    "triplet": lambda **k: F.triplet_margin_loss(x, y, z, 0.5, swap=True, **k),
}
for name, call in CALLS.items():
    for size_average, reduce in OLD:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            out(f"{name} {size_average} {reduce}", call(size_average=size_average, reduce=reduce))
        texts = [str(w.message) for w in seen if "size_average" in str(w.message)]
        assert len(texts) == (size_average is not None or reduce is not None), texts
        out(f"{name} {size_average} {reduce} text", [len(t) for t in texts])
# by position, in PyTorch's order
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    out("by position", [
        F.cross_entropy(x, classes, weight, False, 4, None, "mean", 0.1).item(), F.nll_loss(p, classes, weight, None, 1).item(),
        F.mse_loss(x, y, False).item(), F.kl_div(x, q, None, None, "sum", True).item(),
        F.poisson_nll_loss(x, q, True, False, False, 1e-8).item(), nn.CrossEntropyLoss(weight, False, 4)(x, classes).item(),
        nn.MSELoss(False)(x, y).item(), nn.NLLLoss(None, None, 2)(p, classes).item(), nn.KLDivLoss(False)(x, q).item(),
        nn.BCEWithLogitsLoss(None, None, False)(x, q).sum().item(), nn.SmoothL1Loss(None, None, "sum", 0.5)(x, y).item(),
        nn.PoissonNLLLoss(True, False, False)(x, q).item(), nn.TripletMarginLoss(0.5, 2, 1e-6, True, False)(x, y, z).item(),
        nn.MultiMarginLoss(2, 0.7, weight, False)(x, classes).item(), nn.HuberLoss("sum", 0.6)(x, y).item(),
    ])
    assert nn.MSELoss(size_average=False).reduction == "sum" and nn.L1Loss(reduce=False).reduction == "none"

# ---- weights of the plain losses
w = T(4, 5).abs()
for reduction in ("mean", "sum", "none"):
    out(f"mse weight {reduction}", F.mse_loss(x, y, reduction=reduction, weight=w))
    out(f"l1 weight {reduction}", F.l1_loss(x, y, reduction=reduction, weight=w))
    out(f"huber weight {reduction}", F.huber_loss(x, y, reduction, 0.6, w))
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    out("mse broadcast", F.mse_loss(x, y[:, :1]))
    out("l1 broadcast", F.l1_loss(x, y[:1]))
assert len(seen) == 2 and all("Using a target size" in str(s.message) for s in seen)

# ---- binary cross-entropy at 0 and 1
ends = st.tensor([0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1e-13, 0.5, 1e-7])
wanted = st.tensor([0.0, 1.0, 0.0, 1.0, 0.3, 0.3, 1.0, 0.5, 0.0])
for reduction in ("mean", "sum", "none"):
    a, b = ends.clone().requires_grad_(), wanted.clone().requires_grad_()
    loss = F.binary_cross_entropy(a, b, reduction=reduction)
    out(f"ends {reduction}", loss)
    loss.sum().backward()
    out(f"ends {reduction} of p", a.grad / 1e12)
    out(f"ends {reduction} of p, small", a.grad.clamp(-10, 10))
    out(f"ends {reduction} of target, bounded", b.grad.clamp(-5, 5))
a = st.sigmoid(T(6)).requires_grad_()
b = st.sigmoid(T(6)).requires_grad_()
g = st.autograd.grad(F.binary_cross_entropy(a, b), a, create_graph=True)[0]
(g * g).sum().backward()
out("bce twice", a.grad)
out("bce twice of target", b.grad)

# ---- what autocast computes in float32 on the CPU
with st.autocast("cpu", dtype=st.bfloat16):
    linear = lambda *s: F.linear(T(*s), st.eye(s[-1]))
    a, b = st.sigmoid(linear(3, 4)), st.sigmoid(linear(3, 4))
    assert linear(3, 4).dtype == st.bfloat16
    ones = st.ones(3)
    kinds = {
        "bcel": F.binary_cross_entropy_with_logits(a, b, pos_weight=b), "bce": F.binary_cross_entropy(a, b),
        "hinge": F.hinge_embedding_loss(a, st.ones(3, 4)), "ranking": F.margin_ranking_loss(a, b, a),
        "triplet": F.triplet_margin_loss(a, b, b * 2), "poisson": F.poisson_nll_loss(a, b), "mse": F.mse_loss(a, b),
        "huber": F.huber_loss(a, b), "kl": F.kl_div(a, b), "cosine": F.cosine_embedding_loss(a, b, ones),
        "soft": F.soft_margin_loss(a, b), "cross_entropy": F.cross_entropy(a, st.tensor([0, 1, 2])),
        "multi": F.multi_margin_loss(a, st.tensor([0, 1, 2])), "quantile": st.quantile(a, 0.5),
        "avg_pool3d": F.avg_pool3d(linear(1, 2, 4, 4, 4), 2), "adaptive3": F.adaptive_avg_pool3d(linear(1, 2, 4, 4, 4), 2),
        "grid_sample": F.grid_sample(linear(1, 2, 4, 4), linear(1, 3, 3, 2), align_corners=False),
        "inv": st.linalg.inv(linear(3, 3)), "prod": a.prod(), "cdist": st.cdist(a, b), "trace": st.trace(linear(3, 3)),
    }
    assert all(v.dtype == st.float32 for v in kinds.values()), {k: v.dtype for k, v in kinds.items() if v.dtype != st.float32}
