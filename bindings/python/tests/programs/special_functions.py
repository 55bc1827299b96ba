# Special functions, whole numbers, windows, matrices' functions; and torch's other names of methods.
import strata as st

T = lambda *s: st.from_numpy(F32(*s))
D = lambda *s: T(*s).double()

# ---- special functions, with gradients where they are smooth
x = st.cat([D(12) * 3, st.tensor([0.0, 0.5, -7.5, 20.0, 60.0], dtype=st.float64)])
positive = D(9).abs() + 0.1
share = st.sigmoid(D(8))
sp = st.special
for name, given in (("i0", x), ("i0e", x), ("i1", x), ("i1e", x), ("ndtr", x), ("log_ndtr", x), ("erfcx", x.clamp(-4)),
                    ("entr", share), ("ndtri", share), ("expit", x), ("psi", positive), ("gammaln", positive),
                    ("sinc", x), ("bessel_j0", x), ("bessel_j1", x)):
    v = given.clone().requires_grad_(name not in ("bessel_j0", "bessel_j1"))
    y = getattr(sp, name)(v)
    out(name, y)
    if v.requires_grad:
        y.clamp(-1e5, 1e5).sum().backward()
        out(f"{name} grad", v.grad)
for n in (0, 1, 2, 4):
    v = positive.clone().requires_grad_()
    y = st.polygamma(n, v)
    out(f"polygamma {n}", y)
    y.sum().backward()
    out(f"polygamma {n} grad", v.grad)
out("zeta", sp.zeta(positive + 1.1, positive))
out("mvlgamma", st.mvlgamma(positive + 2, 4))
out("xlog1py", sp.xlog1py(st.tensor([0.0, 1.0, 2.0]), st.tensor([float("inf"), 0.5, 3.0])))
out("entr ends", sp.entr(st.tensor([0.0, 1.0, -1.0])))
for dtype in (st.float32, st.bfloat16):
    assert st.i0(st.ones(2, dtype=dtype)).dtype == dtype

# ---- whole numbers, floats taken apart
a, b = st.tensor([12, -18, 0, 7, 270, 0]), st.tensor([18, 12, 5, 0, 192, 0])
out("gcd", st.gcd(a, b))
out("lcm", st.lcm(a, b))
out("gcd broadcast", st.gcd(a.unsqueeze(1), b[:3].int()))
m, e = st.frexp(T(7) * 100)
out("frexp", m)
out("frexp e", e)
out("nextafter", (st.nextafter(st.tensor([1.0, -2.0, 0.0]), st.tensor([2.0, -3.0, 1.0])) - st.tensor([1.0, -2.0, 0.0])) * 1e7)
out("angle", st.angle(st.tensor([-2.0, 0.0, 3.0])))
assert not st.is_complex(a) and st.is_signed(a) and not st.tensor([1], dtype=st.uint8).is_signed()

# ---- statistics
holes = st.tensor([[1.0, float("nan"), 3.0, 2.0], [float("nan"), 5.0, 4.0, 8.0], [9.0, 7.0, 6.0, 0.5]])
out("nanmedian", st.nanmedian(holes))
v, i = st.nanmedian(holes, 1, keepdim=True)
out("nanmedian 1", v)
out("nanmedian 1 at", i)
for dim in (None, 0, 1):
    out(f"nanquantile {dim}", st.nanquantile(holes, st.tensor([0.25, 0.6]), dim))
    out(f"nanquantile one {dim}", st.nanquantile(holes, 0.3, dim, keepdim=True))
h, edges = st.histogram(T(50), 6, range=(-2.0, 2.0), density=True)
out("histogram", h)
out("histogram edges", edges)
out("histogram of weights", st.histogram(T(20), st.tensor([-1.0, 0.0, 0.5, 2.0]), weight=T(20))[0])
y = T(3, 6)
out("cumulative", st.cumulative_trapezoid(y, dx=0.5))
out("cumulative x", st.cumulative_trapezoid(y, T(6), dim=1))
out("cov", st.cov(y, correction=0, fweights=st.tensor([1, 2, 3, 1, 1, 2]), aweights=T(6).abs()))
out("cov method", y.cov())

# ---- matrices
p, q, r = T(2, 3), T(4, 2, 5), T(4, 5, 3)
out("addbmm", st.addbmm(p, q, r, beta=0.5, alpha=2))
out("renorm", st.renorm(T(4, 5), 2, 0, 1.0))
out("renorm 1", T(4, 5).renorm(1, 1, 0.7))
out("diagflat", st.diagflat(T(2, 2), 1))
d = T(3, 4).requires_grad_()
s = T(3).requires_grad_()
z = st.diagonal_scatter(d, s, 1)
out("diagonal_scatter", z)
(z * T(3, 4)).sum().backward()
out("diagonal_scatter grad", d.grad)
out("diagonal_scatter src grad", s.grad)
out("unravel", st.stack(st.unravel_index(st.tensor([0, 5, 23, 17]), (2, 3, 4))))
g = D(3, 3)
g = g @ g.T + st.eye(3, dtype=st.float64)
low = st.linalg.cholesky(g)
out("cholesky_solve", st.cholesky_solve(D(3, 2), low))
out("cholesky_inverse", st.cholesky_inverse(low))
out("cholesky_inverse upper", st.cholesky_inverse(low.mT.contiguous(), upper=True))
e = (D(2, 3, 3) * 2).requires_grad_()
z = st.matrix_exp(e)
out("matrix_exp", z)
z.log1p().nan_to_num(0).sum().backward()
out("matrix_exp grad", e.grad)

# ---- windows
for name in ("bartlett", "blackman", "hamming", "kaiser", "hann"):
    for n in (1, 2, 7, 10):
        for periodic in (True, False):
            out(f"{name} {n} {periodic}", getattr(st, f"{name}_window")(n, periodic))
out("hamming of", st.hamming_window(6, False, 0.6, 0.3, dtype=st.float64))

# ---- methods by their other names
w = T(4, 4)
assert w.H.shape == (4, 4) and st.equal(w.mH, w.mT) and st.equal(w.adjoint(), w.T) and w.is_same_size(w)
for name, args in (("multiply_", (2.0,)), ("subtract_", (w,)), ("divide_", (3.0,)), ("true_divide_", (0.5,)), ("negative_", ()),
                   ("absolute_", ()), ("arctan_", ()), ("clip_", (-0.5, 0.5)), ("clamp_min_", (0.1,)), ("clamp_max_", (0.2,)),
                   ("copysign_", (w,)), ("greater_", (w,)), ("less_equal_", (0.3,)), ("fix_", ()), ("renorm_", (2, 0, 1.0)),
                   ("sgn_", ()), ("i0_", ())):
    out(name, getattr(T(4, 4), name)(*args))
assert not w.is_pinned() and not w.is_shared() and not w.is_inference()
