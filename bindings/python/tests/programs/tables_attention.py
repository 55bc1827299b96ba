# Tables with norms and frequencies, sparse Adam, attention with rows added, its functional form, fused losses.
import strata as st
import strata.nn as nn
import strata.nn.functional as F

T = lambda *s: st.from_numpy(F32(*s))

# ---- tables
ids = st.tensor([[1, 5, 1, 0], [3, 1, 5, 2]])
for options in ({"max_norm": 1.0}, {"max_norm": 2.0, "norm_type": 1.0}, {"scale_grad_by_freq": True},
                {"scale_grad_by_freq": True, "padding_idx": 5, "max_norm": 1.5}):
    table = fill(nn.Embedding(8, 6, **options), 2, 1.0)
    y = table(ids)
    out(f"table {sorted(options.items())}", y)
    (y * T(2, 4, 6)).sum().backward()
    out(f"table {sorted(options.items())} grad", table.weight.grad)
    out(f"table {sorted(options.items())} weight", table.weight)
    assert "max_norm" in repr(table) or "max_norm" not in options
for mode in ("sum", "mean", "max"):
    bag = fill(nn.EmbeddingBag(8, 6, max_norm=1.2, mode=mode), 3, 1.0)
    out(f"bag {mode}", bag(ids))
    out(f"bag {mode} weight", bag.weight)

for mode in ("sum", "mean"):
    for padding in (None, 5):
        bag = fill(nn.EmbeddingBag(8, 6, scale_grad_by_freq=True, mode=mode, padding_idx=padding), 3, 1.0)
        y = bag(st.tensor([1, 5, 1, 0, 3, 1, 5, 2]), st.tensor([0, 3, 3, 7]))
        out(f"bag by frequency {mode} {padding}", y)
        (y * T(4, 6)).sum().backward()
        out(f"bag by frequency {mode} {padding} grad", bag.weight.grad)

# ---- sparse Adam: rows that a step does not use keep their moments
table = fill(nn.Embedding(9, 4, sparse=True), 4, 1.0)
optimizer = st.optim.SparseAdam(table.parameters(), lr=0.05, betas=(0.8, 0.95))
want = T(9, 4)
for step in range(6):
    optimizer.zero_grad()
    rows = st.tensor([[0, 1, 1], [2, 5, 0], [8, 8, 8], [1, 2, 3], [5, 0, 4], [1, 1, 0]][step])
    loss = ((table(rows) - want[rows]) ** 2).sum()
    loss.backward()
    optimizer.step()
    out(f"sparse adam {step}", loss)
out("sparse adam weight", table.weight)
out("sparse adam moments", optimizer.state[table.weight]["exp_avg_sq"])

# ---- attention with rows added
mask = st.tensor([[0.0, -1.0, 0.5, 0.2, 0.1], [0.3, 0.0, -0.4, float("-inf"), 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
padding = st.tensor([[False, True, False, False, True], [False, False, False, False, False]])
for bias_kv, zero in ((True, False), (False, True), (True, True)):
    for separate in (False, True):
        sizes = {"kdim": 6, "vdim": 10} if separate else {}
        m = fill(nn.MultiheadAttention(8, 2, add_bias_kv=bias_kv, add_zero_attn=zero, **sizes), 6, 0.4)
        q, k, v = T(3, 2, 8), T(5, 2, sizes.get("kdim", 8)), T(5, 2, sizes.get("vdim", 8))
        key = f"attention {bias_kv} {zero} {separate}"
        for need in (True, False):
            y, w = m(q, k, v, key_padding_mask=padding, attn_mask=mask, need_weights=need, average_attn_weights=False)
            out(f"{key} {need}", y)
            if need:
                out(f"{key} weights", w)
        (y * y).sum().backward()
        out(f"{key} grad", m.out_proj.weight.grad)
        if bias_kv:
            out(f"{key} bias grad", st.cat([m.bias_k.grad, m.bias_v.grad]))
    assert [n for n, _ in m.named_parameters() if n.startswith("bias")] == (["bias_k", "bias_v"] if bias_kv else [])

# ---- the functional form, as attention pooling uses it
x = T(7, 2, 8)
wq, wk, wv, wo = (T(8, 8) * 0.4 for _ in range(4))
b, bo = T(24), T(8)
y, w = F.multi_head_attention_forward(
    query=x[:1], key=x, value=x, embed_dim_to_check=8, num_heads=4, q_proj_weight=wq, k_proj_weight=wk, v_proj_weight=wv,
    in_proj_weight=None, in_proj_bias=b, bias_k=None, bias_v=None, add_zero_attn=False, dropout_p=0, out_proj_weight=wo,
    out_proj_bias=bo, use_separate_proj_weight=True, training=False, need_weights=False)
out("pooled", y)
assert w is None
y, w = F.multi_head_attention_forward(x, x, x, 8, 2, st.cat([wq, wk, wv]), b, None, None, True, 0.0, wo, bo,
                                      static_k=T(4, 5, 4), static_v=T(4, 5, 4))
out("static", y)
out("static weights", w)

# ---- fused losses
h, w, t = T(6, 5).requires_grad_(), T(9, 5).requires_grad_(), st.tensor([0, 8, 3, -100, 2, 2])
for name, options in (("plain", {}), ("smooth", {"label_smoothing": 0.2}), ("none", {"reduction": "none"}),
                      ("bias", {"linear_bias": T(9)}), ("weight", {"weight": T(9).abs(), "reduction": "sum"}),
                      ("ignore", {"ignore_index": 2})):
    loss = F.linear_cross_entropy(h, w, t.clamp(0) if name == "ignore" else t, **options)
    out(f"fused {name}", loss)
    h.grad = w.grad = None
    loss.sum().backward()
    out(f"fused {name} h", h.grad)
    out(f"fused {name} w", w.grad)
