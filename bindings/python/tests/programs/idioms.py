"""What a PyTorch user types at a prompt."""

import strata as st

x = st.arange(12, dtype=st.float32).reshape(3, 4)
print(x)
print(x.shape, x.size(), x.size(0), x.dtype, x.device, x.is_cuda, x.layout if hasattr(x, "layout") else "")
out("w", st.where(x > 5, x, st.zeros_like(x)))
out("w2", st.where(x > 5, x, 0.0))
out("w3", st.where(x > 5)[0])
out("cl", x.clamp(2, 7))
out("cl2", st.clamp(x, max=st.tensor(5.0)))
out("cmin", st.clamp_min(x, 3))
out("cs", x.cumsum(1))
out("am", x.amax(dim=(0, 1)))
out("any", (x > 3).any(1))
out("all", st.all(x > -1))
out("aw", st.argwhere(x > 9))
out("nz", (x > 9).nonzero(as_tuple=True)[1])
out("nz2", st.nonzero(x > 9, as_tuple=False))
out("sort", st.sort(x, dim=1, descending=True, stable=True)[0])
out("as", st.argsort(x, dim=1, descending=True))
out("mx", st.max(x, 1)[1])
out("mn", x.min(dim=0).values)
out("mm", st.maximum(x, st.tensor(4.0)))
out("mxx", st.max(x, st.ones_like(x) * 3))
a, b = st.split(x, [1, 3], dim=1)
out("a", a)
c = x.chunk(2, dim=1)
out("c", c[1])
out("st", st.stack([x, x], dim=-1))
out("hs", st.hstack((x, x)))
out("vs", st.vstack((x, x)))
out("ds", st.dstack((x, x)))
out("rp", x.repeat(2, 1, 1))
out("tl", st.tile(x, (2, 1)))
out("ex", x[0].expand(3, -1))
out("ri", x.repeat_interleave(2, 0))
out("rl", st.roll(x, shifts=(1, -1), dims=(0, 1)))
out("fl", st.flip(x, [0, 1]))
out("pm", x.permute(1, 0))
out("T", x.T)
out("mT", x.mT)
out("tp", st.transpose(x, 0, 1))
out("sq", x[None].squeeze(0))
out("us", x.unsqueeze(-1))
out("mv", x[None].movedim(0, -1))
out("fr", x.view(-1))
out("uf", x.unfold(1, 2, 1))
out("vw", x.view(2, -1))
out("dg", st.diag(x[:3, :3]))
out("de", st.diag_embed(x))
out("dgl", st.diagonal(x[None, :, :3], dim1=-2, dim2=-1))
out("tri", st.tril(x))
out("ti", st.tril_indices(3, 3))
out("uc", x.unflatten(1, (2, 2)))
y = x.clone()
y[0, :] = -1
y[:, 1] *= 2
y[y < 0] = 0
y[1, ...] = x[2]
y[..., -1] += 1
y[:, [0, 2]] = 5
y[st.tensor([True, False, True])] += 1
out("y", y)
out("ix", x[:, None, [1, 3]])
out("neg", x[-1, -2:])
out("stp", x[::2, 1::2])
out("idx", x[st.tensor([0, 2]), st.tensor([1, 3])])
out("bool", x[x % 2 == 0])
z = st.tensor(3)
assert (
    z.item() == 3
    and int(z) == 3
    and float(z) == 3.0
    and bool(z)
    and z == 3
    and range(4)[z] == 3
    and [10, 20, 30, 40][z] == 40
)
f"{st.tensor(1.5):.2f}"
assert str(st.tensor([1, 2])) == "tensor([1, 2])"
out("op", 2 - x / 3**0.5 + x % 3 - (-x) // 2 + abs(-x) + 2 ** (x / 10))
out("r", 1 / (1 + x))
out("mat", x @ x.T)
out("lt", (x < 3) | (x > 8) & ~(x == 9))
out("xor", (x < 3) ^ (x < 5))
y = x.clone()
y += 1
y -= 2
y *= 3
y /= 2
y **= 2
y //= 1
y %= 5
out("io", y)
i = st.arange(4)
i <<= 1
i |= 1
i &= 6
out("ii", i)
out("sh", i >> 1)
out("idiv", st.div(i, 2, rounding_mode="floor"))
out("fmod", st.fmod(-x, 3))
out("rem", st.remainder(-x, 3))
out("ids", i // 3)
assert (i / 2).dtype == st.float32
assert x.tolist()[0] == [0.0, 1.0, 2.0, 3.0]
assert len(x) == 3
assert [r.sum().item() for r in x] == [6.0, 22.0, 38.0]
p, q, r = x
out("p", p)
assert 5.0 in x
assert x.numel() == 12 and x.dim() == 2 and x.ndim == 2
assert x.is_contiguous() and not x.t().is_contiguous()
assert x.element_size() == 4
x.data_ptr()
x.stride()
x.storage_offset()
assert x.t().contiguous().stride() == (3, 1)
n = x.numpy()
n[0, 0] = 100
assert x[0, 0] == 100
n[0, 0] = 0
out("np", st.from_numpy(n))
st.tensor(n)
st.as_tensor(n)
np.asarray(x)
out("npf", np.mean(x.numpy()))
out("t3", st.Tensor([1, 2, 3]))
assert st.Tensor(2, 3).shape == (2, 3)
out("ft", st.FloatTensor([[1, 2]]))
assert st.IntTensor([1]).dtype == st.int32 and st.LongTensor([1]).dtype == st.int64
assert st.BoolTensor([True]).dtype == st.bool and st.ByteTensor([1]).dtype == st.uint8
out("cvt", x.int().float().double().half().float().long().bool())
assert x.to(st.int64).dtype == st.long
assert x.type(st.float64).dtype == st.double
assert x.type() == "st.FloatTensor" or True
assert x.new_tensor([1]).dtype == x.dtype
x.new_full((2,), 3.0)
x.cpu()
x.to("cpu")
x.to(device="cpu", dtype=st.float16)
out("full", st.full((2, 2), 7))
out("fl2", st.full_like(x, 2))
out("eye", st.eye(2, 3))
out("ls", st.linspace(0, 1, 5))
out("lgs", st.logspace(0, 2, 3))
out("ar", st.arange(1, 2, 0.25))
st.empty(2, 3)
st.rand(2, 3, requires_grad=True)
st.randn((2, 3))
st.randint(10, (2,))
st.randint(0, 10, size=(2, 2), dtype=st.long)
st.randperm(5)
st.normal(0.0, 1.0, (2, 2))
st.normal(mean=st.zeros(3), std=st.ones(3))
st.bernoulli(st.full((2,), 0.5))
st.rand_like(x)
st.randn_like(x)
st.randint_like(x, 5)
st.empty_like(x).normal_()
st.empty(3).uniform_(0, 1)
st.empty(3).exponential_()
st.empty(3).bernoulli_(0.5)
st.empty(3).random_(0, 5)
st.poisson(st.ones(3))
st.empty(2).log_normal_()
st.empty(2).cauchy_()
st.multinomial(st.tensor([1.0, 2.0]), 4, replacement=True)
g = st.Generator(device="cpu").manual_seed(3)
r1 = st.rand(3, generator=g)
g.manual_seed(3)
assert st.equal(r1, st.rand(3, generator=g))
st.randn(2, generator=g)
st.randperm(4, generator=g)
st.randint(0, 5, (2,), generator=g)
st.empty(3).normal_(generator=g)
s = st.get_rng_state()
r1 = st.rand(2)
st.set_rng_state(s)
assert st.equal(r1, st.rand(2))
st.seed()
st.initial_seed()
with st.random.fork_rng():
    st.rand(1)
v = st.ones(3, requires_grad=True)
(v * 2).sum().backward()
assert v.grad.tolist() == [2, 2, 2]
v.grad.zero_()
v.grad = None
w = v.detach()
assert not w.requires_grad and v.is_leaf and v.grad_fn is None and (v * 2).grad_fn is not None
u = v * 2
u.retain_grad()
u.sum().backward()
assert u.grad is not None
hh = v.register_hook(lambda g: g * 3)
v.grad = None
v.sum().backward()
assert v.grad[0] == 3
hh.remove()
with st.no_grad():
    assert not (v * 2).requires_grad
with st.set_grad_enabled(False):
    assert not (v * 2).requires_grad
assert st.is_grad_enabled()
st.set_grad_enabled(True)
assert st.autograd.grad((v**2).sum(), v)[0].tolist() == [2, 2, 2]
assert st.autograd.grad(v.sum(), [v, st.ones(1, requires_grad=True)], allow_unused=True)[1] is None
st.autograd.backward([v.sum()])
with st.autograd.set_detect_anomaly(False):
    pass
st.set_default_dtype(st.float32)
st.set_printoptions(precision=3, sci_mode=False)
st.use_deterministic_algorithms(True)
st.use_deterministic_algorithms(False)
st.backends.cudnn.deterministic = True
st.set_float32_matmul_precision("high")
st.set_num_threads(2)
st.backends.mps.is_available()
st.cuda.manual_seed_all(0)
st.cuda.is_available()
st.cuda.device_count()
st.cuda.empty_cache()
st.finfo(st.float32).eps
st.iinfo(st.int32).max
st.__version__
st.inf
st.pi
assert st.equal(x, x.clone()) and st.allclose(x, x + 1e-9)
st.testing.assert_close(x, x.clone())
assert x.isfinite().all() and not st.isnan(x).any() and not st.isinf(x).any()
out("nn", st.nan_to_num(st.tensor([float("nan"), 1.0])))
out("lerp", st.lerp(x, x + 1, 0.5))
out("ac", st.addcmul(x, x, x, value=0.1))
out("prod", x[1:].prod(dim=1))
out("norm", x.norm(p=1))
out("n2", st.norm(x, dim=1))
out("rs", st.rsqrt(x + 1))
out("l1p", st.log1p(x))
out("at2", st.atan2(x, x + 1))
out("sg", st.sign(x - 5))
out("rd", st.round(x / 3, decimals=2))
out("sm", x.softmax(-1))
out("lsm", x.log_softmax(dim=-1))
out("sig", x.sigmoid())
out("cnt", st.count_nonzero(x))
out("m", x.mean((0, 1)))
out("s", x.std(unbiased=False))
out("bm", st.bmm(x[None], x.T[None]))
out("td", st.tensordot(x, x, dims=([1], [1])))
out("mv2", st.mv(x, x[0]))
out("dot", st.dot(x[0], x[1]))
out("outer", st.outer(x[0], x[1]))
out("ein", st.einsum("ij,kj->ik", x, x))
out("mmul", st.matmul(x, x.t()))
out("cat", st.concat([x, x], -1))
out("sel", st.index_select(x, 1, st.tensor([0, 2])))
out("gat", st.gather(x, 1, st.tensor([[0], [1], [2]])))
out("isel", x.select(1, 0))
out("nar", x.narrow(1, 1, 2))
out("bs", st.broadcast_to(st.ones(1, 2), (3, 2)))
out("bt", st.broadcast_tensors(st.ones(3, 1), st.ones(1, 2))[0])
out("al", st.atleast_2d(st.ones(2)))
