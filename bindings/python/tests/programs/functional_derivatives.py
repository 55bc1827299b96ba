# torch.func's derivatives, more of linalg, small methods, older paths.
import strata as st
from strata.func import grad, hessian, jacrev, jvp, vjp
from strata.nn.utils.clip_grad import clip_grad_norm_
from strata.nn.utils.convert_parameters import parameters_to_vector
from strata.nn.utils.stateless import functional_call

T = lambda *s: st.from_numpy(F32(*s))
D = lambda *s: T(*s).double()

x, y = D(3), D(3)
f = lambda a, b: st.sin(a) * b.sum() + a.sum()
out("jacrev", jacrev(f)(x, y))
out("jacrev 1", jacrev(f, argnums=1)(x, y))
both = jacrev(f, argnums=(0, 1))(x, y)
out("jacrev both", both[0] + both[1])
two = jacrev(lambda a: (a * a, a.sum()))(x)
out("jacrev outputs", two[0])
out("jacrev outputs 1", two[1])
g = lambda a, b: (a**3 * b).sum() + (a.sum() * b).exp().sum()
out("hessian", hessian(g)(x, y))
h = hessian(g, argnums=(0, 1))(x, y)
out("hessian 01", h[0][1])
out("hessian 11", h[1][1])
value, pull = vjp(f, x, y)
out("vjp value", value)
a, b = pull(D(3))
out("vjp a", a)
out("vjp b", b)
value, pull, aux = vjp(lambda a: ((a * 2, a.cos()), a + 1), x, has_aux=True)
out("aux", aux)
out("vjp two", pull((D(3), D(3)))[0])
value, push = jvp(f, (x, y), (D(3), D(3)))
out("jvp value", value)
out("jvp", push)
out("grad of jacrev", grad(lambda a: jacrev(lambda v: st.sin(v) * v)(a).diagonal().sum())(x))

# ---- linalg
m = D(2, 3, 3) + 3 * st.eye(3, dtype=st.float64)
result = st.linalg.inv_ex(m)
out("inv_ex", result.inverse)
assert result.info.tolist() == [0, 0] and st.linalg.inv_ex(st.zeros(2, 2)).info.item() > 0
spd = m @ m.mT
out("cholesky_ex", st.linalg.cholesky_ex(spd).L)
assert st.linalg.cholesky_ex(-st.eye(3)).info.item() > 0
out("solve_ex", st.linalg.solve_ex(m, D(2, 3, 2)).result)
out("vander", st.linalg.vander(x))
out("vander 5", st.linalg.vander(D(2, 3), N=5))
out("tensorinv", st.linalg.tensorinv(D(2, 3, 6), ind=2))
out("tensorsolve", st.linalg.tensorsolve(D(2, 3, 6), D(2, 3)))
out("tensorsolve dims", st.linalg.tensorsolve(D(6, 2, 3), D(2, 3), dims=(0,)))
out("matrix_exp", st.linalg.matrix_exp(D(3, 3)))

# ---- methods
w = T(3, 4)
assert st.tensor([2.0]).is_nonzero() and not w.is_conj()
out("put", w.clone().put_(st.tensor([0, 5, 11]), st.tensor([9.0, 8.0, 7.0])))
out("put accumulate", w.clone().put_(st.tensor([[1, 1], [2, 3]]), st.ones(2, 2), accumulate=True))
out("prelu", w.prelu(st.tensor([0.3])))
out("hardshrink", w.hardshrink(0.7))
out("chunks", w.unsafe_chunk(2, 1)[1])
out("fix", (w * 3).fix())
layer = fill(st.nn.Linear(4, 2), 1, 1.0)
out("vector", parameters_to_vector(layer.parameters()))
out("called", functional_call(layer, {"weight": st.ones(2, 4)}, (w,)))
layer(w).sum().backward()
out("clipped", clip_grad_norm_(layer.parameters(), 0.5, foreach=False))
