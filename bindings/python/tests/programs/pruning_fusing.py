# Pruning, norms folded into layers, older names.
import warnings

import strata as st
import strata.nn as nn
import strata.nn.functional as F
import strata.nn.utils.prune as prune
from strata.nn.attention import SDPBackend, sdpa_kernel

T = lambda *s: st.from_numpy(F32(*s))

# ---- pruning
net = fill(nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 5)), 2, 1.0)
x = T(3, 2, 4, 4)
prune.l1_unstructured(net[0], "weight", amount=0.3)
out("l1", net(x))
assert [n for n, _ in net[0].named_parameters()] == ["bias", "weight_orig"]
assert [n for n, _ in net[0].named_buffers()] == ["weight_mask"] and prune.is_pruned(net)
prune.ln_structured(net[0], "weight", amount=2, n=2, dim=0)
out("then channels", net(x))
out("channels mask", net[0].weight_mask.sum((1, 2, 3)))
prune.l1_unstructured(net[0], "weight", amount=0.5)
out("then half of what is left", net[0].weight_mask.flatten())
net(x).sum().backward()
out("grad", net[0].weight_orig.grad)
optimizer = st.optim.SGD(net.parameters(), lr=0.1)
optimizer.step()
out("after a step", net(x))
prune.remove(net[0], "weight")
out("removed", net(x))
assert sorted(n for n, _ in net[0].named_parameters()) == ["bias", "weight"] and not prune.is_pruned(net)
state = net.state_dict()
prune.global_unstructured([(net[0], "weight"), (net[3], "weight")], pruning_method=prune.L1Unstructured, amount=0.4)
out("global", [net[0].weight_mask.sum().item(), net[3].weight_mask.sum().item()])
out("global out", net(x))
prune.custom_from_mask(net[3], "bias", st.tensor([1.0, 0.0, 1.0, 1.0, 0.0]))
out("custom", net[3].bias)
prune.random_unstructured(net[3], "weight", amount=10)
conv = nn.Conv2d(4, 6, 3)
prune.random_structured(conv, "weight", amount=2, dim=1)
out("random", [net[3].weight_mask.sum().item(), conv.weight_mask.sum().item(), conv.weight_mask.amax((0, 2, 3)).sum().item()])
scores = T(5, 24).abs()
linear = fill(nn.Linear(24, 5), 4, 1.0)
prune.l1_unstructured(linear, "weight", 7, importance_scores=scores)
out("scores", linear.weight_mask.flatten().nonzero().flatten().sum())
prune.identity(linear, "bias")
out("identity", linear.bias_mask)
for bad in (1.5, -1, 10**6):
    try:
        prune.l1_unstructured(nn.Linear(4, 3), "weight", bad)
        raise AssertionError("accepted")
    except ValueError:
        pass

# ---- norms folded into layers
bn = fill(nn.BatchNorm1d(5), 5, 1.0)
for _ in range(3):
    bn(T(8, 5))
linear = fill(nn.Linear(7, 5), 6, 1.0)
y = T(4, 7)
fused = nn.utils.fuse_linear_bn_eval(linear.eval(), bn.eval())
out("fused", fused(y))
out("fused is", fused(y) - bn(linear(y)))
w, b = nn.utils.fuse_linear_bn_weights(linear.weight, None, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
out("fused weights", st.cat([w.flatten(), b]))

# ---- older names
assert issubclass(nn.LSTMCell, nn.RNNCellBase)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    out("nll2d", nn.NLLLoss2d()(F.log_softmax(T(2, 3, 4, 4), 1), st.zeros(2, 4, 4, dtype=st.long)))
    out("constant", nn.init.constant(st.empty(3), 2.5))
    out("eye", nn.init.eye(st.empty(3, 4)))
    p = st.ones(3, requires_grad=True)
    (p * 4).sum().backward()
    out("norm", nn.utils.clip_grad_norm(p, 1.0))
    out("clipped", p.grad)
assert all(issubclass(w.category, FutureWarning) for w in seen[-4:]) and len(seen) >= 4
q = st.ones(3, requires_grad=True)
(q * T(3)).sum().backward()
nn.utils.clip_grads_with_norm_([q], 0.3, nn.utils.get_total_norm([q.grad], foreach=False))
out("clipped with norm", q.grad)
with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
    out("sdpa", F.scaled_dot_product_attention(T(1, 2, 3, 4), T(1, 2, 3, 4), T(1, 2, 3, 4)))
