import ast
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import strata as st


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_no_leak_over_100_000_tensors():
    a = np.ones(16, np.float32)

    class Twice(st.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    w = st.ones(16, requires_grad=True)

    def round_of(n):
        for _ in range(n):
            x = st.from_numpy(a) + st.ones(16)
            y = st.from_dlpack(x)
            z = st.softmax(y, dim=0)[1:3]
            np.asarray(z)
            loss = (Twice.apply(w) * x).sum()
            loss.register_hook(lambda g: g)
            loss.backward()
            w.grad = None
            try:
                st.matmul(x, st.ones(3))
            except st.ShapeError:
                pass

    round_of(1000)
    gc.collect()
    before, references = resident(), sys.getrefcount(a)
    round_of(10_000)  # ten tensors each and more
    gc.collect()
    grown = resident() - before
    assert grown < 4 << 20, f"{grown} bytes more"
    assert sys.getrefcount(a) == references


def test_threads():
    errors = []
    weights = st.randn(64, 64)

    def work(seed):
        try:
            x = st.full((64, 64), float(seed))
            for i in range(60):
                w = weights.clone().requires_grad_()
                y = (x @ w).tanh()
                y.register_hook(lambda g: g * 1)  # takes the GIL in the backward pass
                y.sum().backward()
                assert w.grad.shape == (64, 64)
                small = st.ones(4) + seed
                assert small.tolist() == [1.0 + seed] * 4
                assert st.from_numpy(np.full(3000, seed, np.float32)).sum().item() == 3000 * seed
        except BaseException as error:  # noqa: B902
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive(), "deadlock"
    assert not errors


def test_modes_are_each_threads_own():
    seen = []
    with st.no_grad():
        t = threading.Thread(target=lambda: seen.append(st.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


def test_wrong_arguments_are_pythons_errors():
    x = st.ones(2, 3)
    cases = [
        lambda: st.matmul(x, x), lambda: st.matmul(x, None), lambda: st.conv2d(x, x), lambda: st.cat([x, 3]),
        lambda: st.cat("text"), lambda: st.zeros(-1), lambda: st.zeros("a"), lambda: st.zeros(1, dtype="nothing"),
        lambda: st.zeros(1, device="nothing"), lambda: st.zeros(*[1] * 20), lambda: x.view(4), lambda: x.permute(0, 0),
        lambda: x.expand(3, 3), lambda: x.softmax("a"), lambda: x.sum(7), lambda: x.transpose(0, 9), lambda: x + x.T,
        lambda: st.ones(2, dtype=st.int64).sigmoid_(), lambda: x[:, :, 0], lambda: x[st.tensor([5])],
        lambda: x.masked_fill(x, 1.0), lambda: st.embedding(x, x), lambda: st.einsum("ij,jk", x), lambda: x.copy_(st.ones(5)),
        lambda: st.ones(2, dtype=st.int64).requires_grad_(), lambda: st.arange(1, 0, 0), lambda: st.Tensor.add(1, 2),
        lambda: st.Tensor.exp(), lambda: st.ops.exp(None), lambda: st.topk(x, 9), lambda: st.device(3.5),
        lambda: x.to("cuda:0") if not st.cuda.is_available() else st.zeros("x"), lambda: st.from_numpy([1, 2]),
        lambda: st.Tensor.grad.__set__(x, "a"), lambda: x.backward(), lambda: st.autograd.grad(x, x),
        lambda: x.register_hook(None), lambda: st.cross_entropy(x, st.tensor([7, 8])), lambda: st.ops.dropout(x, 2.0),
        lambda: st.ops.rotary(x, x, x), lambda: memoryview(st.ones(2, device="meta")), lambda: st.Tensor.__new__(int),
    ]
    for i, case in enumerate(cases):
        with pytest.raises(Exception) as caught:
            case()
            pytest.fail(f"case {i} was taken")
        assert not isinstance(caught.value, SystemError), (i, caught.value)
        assert str(caught.value), i


def test_every_op_refuses_nonsense_without_a_crash():
    junk = [None, 3, -1, 2.5, "text", (), [1, 2], (0, 0, 0), object(), st.ones(2, 3), st.zeros(0), st.tensor(1), [st.ones(2)],
            st.ones(2, device="meta"), float("nan"), st.float32, True]
    ran = 0
    for name, op in st._core.ops.items():
        arity = op.schema.split("->")[0].count(",") + 1
        for shift in range(len(junk)):
            arguments = [junk[(shift * (i + 1) + i) % len(junk)] for i in range(arity)]
            try:
                op(*arguments)
            except (SystemError, AssertionError):
                raise
            except Exception:  # any other is an answer
                pass
            ran += 1
    assert ran > 3000


def test_interrupt_during_training():
    script = textwrap.dedent("""
        import signal, sys
        import strata as st
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background starts without
        m = st.nn.Linear(64, 64)
        o = st.optim.AdamW(m.parameters())
        x = st.randn(256, 64)
        try:
            print("ready", flush=True)
            while True:
                o.zero_grad()
                (m(x) ** 2).mean().backward()
                o.step()
        except KeyboardInterrupt:
            print("interrupted", tuple(m(x).shape), flush=True)
    """)
    p = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "ready\n"
    p.send_signal(signal.SIGINT)
    try:
        out, _ = p.communicate(timeout=60)
    finally:
        p.kill()
    assert out == "interrupted (256, 64)\n" and p.returncode == 0


def test_end_of_the_interpreter_with_everything_alive():
    script = textwrap.dedent("""
        import threading, numpy as np
        import strata as st
        a = np.ones(4, np.float32)
        x = st.from_numpy(a).requires_grad_()
        class F(st.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                ctx.cycle = ctx
                return v * 2
            @staticmethod
            def backward(ctx, g):
                return g
        y = F.apply(x) * 3
        y.register_hook(lambda g: g)
        st.keep = (x, y, x.__class__, memoryview(y.detach()), y.detach().__dlpack__())
        threading.Thread(target=lambda: st.randn(300, 300) @ st.randn(300, 300), daemon=True).start()
        print("end")
    """)
    p = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0 and p.stdout == "end\n" and not p.stderr, p.stderr


def test_stubs_are_those_of_the_records(tmp_path):
    pytest.importorskip("nanobind")
    script = pathlib.Path(__file__).parents[1] / "stubs.py"
    package = pathlib.Path(st.__file__).parent
    p = subprocess.run([sys.executable, str(script), "--package", str(package.parent), "--to", str(tmp_path)], capture_output=True, text=True)
    assert p.returncode == 0, p.stdout + p.stderr
    written = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.pyi")}
    assert sorted(written) == ["__init__.pyi", "_core.pyi", "_ops.pyi", "_records.pyi", "distributions/families.pyi",
                               "optim/_rules.pyi"]
    for text in written.values():
        ast.parse(text)
    # Of a process of its own: another test may have added a plugin's ops to this one.
    fresh = subprocess.run([sys.executable, "-c", "import strata; print(strata._core.describe_ops())"], capture_output=True,
                           text=True, check=True)
    ops = json.loads(fresh.stdout)["ops"]
    assert len(ops) > 500 and all(f"def {op['name']}(" in written["_ops.pyi"] for op in ops)
    # The build has put the same beside the module; one with a sanitizer has none.
    for name, text in written.items():
        assert not (package / name).exists() or (package / name).read_text() == text, name
    if "site-packages" in package.parts:
        assert all((package / name).exists() for name in written)


def test_a_missing_library_is_explained():
    script = """
import sys

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name == "strata._core":
            raise ImportError("libdnnl.so.3: cannot open shared object file: No such file or directory")

sys.meta_path.insert(0, Refuses())
try:
    import strata
except ImportError as error:
    print(error)
"""
    p = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0, p.stderr
    assert p.stdout.startswith("strata needs libdnnl.so.3, which is not on this machine."), p.stdout
    assert "apt-get install libdnnl-dev" in p.stdout
