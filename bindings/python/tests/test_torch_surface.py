"""What a script written for PyTorch meets: its argument names, `out=`, NumPy and einops beside tensors, switches, module paths,
wrappers for one process, the state of its optimizers; and arguments that make no sense."""

import copy
import ctypes
import importlib
import json
import struct
import sys
import warnings
import zlib

import numpy as np
import pytest

import strata as st
from strata import nn, _signatures, _once


# ---- arguments that make no sense


class _Buffer(ctypes.Structure):
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


@pytest.mark.parametrize("flags", [0, 1, 4, 8])
def test_a_buffer_without_a_shape_is_a_row_of_bytes(flags):
    x = st.arange(6.0).reshape(2, 3)
    view = _Buffer()
    assert ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(x), ctypes.byref(view), flags) == 0
    assert view.len == 24 and (view.ndim == 2 if flags & 8 else view.ndim == 1)
    assert bool(view.shape) == bool(flags & 8) and (flags & (4 | 8) or view.itemsize == 1)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    if sys.version_info >= (3, 12):
        assert len(x.__buffer__(0)) == 24


def test_a_list_that_holds_itself_is_refused():
    endless = []
    endless.append(endless)
    deep = [1.0]
    for _ in range(100):
        deep = [deep]
    pair = [endless, endless]
    for data in (endless, deep, (endless,), pair, [st.ones(2), endless]):
        with pytest.raises((ValueError, TypeError), match="nested|list|sequence"):
            st.tensor(data)


def test_numbers_that_change_their_list_while_they_are_read():
    class Index:
        def __index__(self):
            sizes.clear()
            return 2

    class Number:
        dtype = shape = None

        def item(self):
            numbers.clear()
            return 1.0

    sizes = [Index(), 3, 4]
    with pytest.raises((TypeError, IndexError)):
        st.zeros(sizes)
    numbers = [Number(), 2.0, 3.0]
    assert st.tensor(numbers).tolist() == [1, 2, 3]


def _absurd():
    endless = []
    endless.append(endless)
    made = st.device.__new__(st.device)

    class Liar:
        shape, dtype, __array_interface__ = None, "float32", {"shape": (3,)}

        def __len__(self):
            return -1

        def __index__(self):
            return 10**30

        def __float__(self):
            raise KeyError("no")

    return [None, True, -1, 2**31, 2**63, -(2**70), 1e308, float("nan"), "", "x" * 1000, b"", [], (), [[]], endless, {}, {1: 2}, object(),
            int, Liar(), Liar, made, lambda: 0, st.float32, st.ones(0), st.ones(2, 3), st.ones(()), st.tensor(True), [st.ones(2), None],
            [1, None], ["a"], slice(None), ..., np.ones(2), np.array("x"), range(3), st.nn.Parameter(st.ones(2))]


@pytest.mark.parametrize("part", range(4))
def test_no_argument_ends_the_program(part):
    """Every entry of the engine with arguments of every kind: errors of Python's, nothing else."""
    values = _absurd()
    refused = accepted = 0
    names = sorted(n for n in vars(st._core) if not n.startswith("__") and callable(getattr(st._core, n)) and not isinstance(
        getattr(st._core, n), type))
    skip = ("set_num_threads", "set_default", "manual_seed", "_set_rng", "cuda_", "memory_", "load_plugin", "_add_new_ops", "Run", "set_",
            "write", "save", "checkpoint", "train", "encode")
    calls = [(n, getattr(st._core, n)) for n in names if not n.startswith(skip)]
    calls += [(n, getattr(st.Tensor, n)) for n in sorted(vars(st.Tensor)) if not n.startswith("__") and callable(getattr(st.Tensor, n))]
    calls += [(n, st._core.ops[n]) for n in sorted(st._core.ops)]
    tensors = [st.ones(2, 3), st.ones(0), st.tensor([1, 2]), st.tensor(1.5), st.ones(2, requires_grad=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in calls[part::4]:
            random = np.random.default_rng(sum(map(ord, name)))  # whatever else there is, each has its own arguments
            for count in (0, 1, 2, 3, 5):
                args = [values[i] for i in random.integers(0, len(values), count)]
                if count and random.random() < 0.7:
                    args[0] = tensors[random.integers(0, len(tensors))]
                try:
                    function(*args)
                    accepted += 1
                except (Exception, MemoryError) as error:  # noqa: BLE001
                    refused += 1
                    assert str(error) != "std::exception", function
    assert refused > 500 and accepted > 20


def test_inner_entries_that_change_a_tensor_take_nothing_else():
    x = st.ones(2, requires_grad=True) * 2
    for wrong in (None, 1.5, "x", [x], object()):
        for call in (lambda o: st._core._set_aside(o), lambda o: st._core._put_over(o, x), lambda o: st._core._put_over(x, o),
                     lambda o: st._core._leaky_relu_over(o, 0.1)):
            with pytest.raises(TypeError):
                call(wrong)
    assert x.tolist() == [2, 2]


# ---- PyTorch's argument names


def test_every_name_of_pytorchs_leads_to_an_argument():
    """The table's names are either arguments of the function, or lead to one by their place."""
    checked = 0
    for name in sorted(_signatures.table()):
        function = getattr(st, name, None) or getattr(st.Tensor, name, None)
        if function is None or isinstance(function, type) or type(function).__name__ not in ("Named", "Op", "OpMethod"):
            continue
        own = _signatures.parameters(function)
        for way in _signatures.table()[name]:
            for at, keyword in enumerate(way):
                if keyword in own.names or own.more(keyword) or own.rest or keyword == "out":
                    continue
                assert _signatures.place(name, [keyword]) == {keyword: way.index(keyword)} or len(_signatures.table()[name]) > 1
                checked += 1
    assert checked > 100


def test_calls_by_pytorchs_names():
    x, m = st.arange(6.0), st.arange(6.0).reshape(2, 3)
    for given, wanted in [
        (x.reshape(shape=(2, 3)), m), (x.view(size=(2, 3)), m), (st.reshape(input=x, shape=[2, 3]), m), (m.expand(size=(4, 2, 3)), m.expand(4, 2, 3)),
        (st.matmul(input=m, other=m.T), m @ m.T), (m.permute(dims=(1, 0)), m.T), (m.repeat(repeats=(2, 1)), st.cat([m, m])),
        (m.transpose(dim0=0, dim1=1), m.T), (st.clamp(input=x, min=1, max=2), x.clip(1, 2)), (m.gather(dim=1, index=st.tensor([[0], [1]])), st.tensor([[0.0], [4.0]])),
        (st.where(condition=x > 2, input=x, other=-x), st.where(x > 2, x, -x)), (x.new_zeros(size=(2,)), st.zeros(2)),
        (st.full(size=(2,), fill_value=3.0), st.full([2], 3.0)), (st.index_select(input=m, dim=0, index=st.tensor([1])), m[1:]),
        (st.add(input=x, other=x, alpha=2), x * 3), (st.addmm(input=st.zeros(2, 2), mat1=m, mat2=m.T, beta=1, alpha=2), 2 * (m @ m.T)),
        (m.flip(dims=(0,)), m.flip(0)), (st.stack(tensors=[x, x], dim=0), st.stack([x, x])), (st.roll(input=x, shifts=1, dims=0), x.roll(1, 0)),
        (m.masked_fill(mask=m > 2, value=0.0), st.where(m > 2, st.zeros(()), m)), (st.bmm(input=m[None], mat2=m.T[None]), (m @ m.T)[None]),
        (x.unsqueeze(dim=0), x[None]), (st.cumsum(input=x, dim=0), x.cumsum(0)), (st.tril(input=m, diagonal=-1), m.tril(-1)),
        (x.sum(dim=0, dtype=st.float64), x.double().sum()), (st.pow(input=x, exponent=2), x * x), (x.add_(other=st.zeros(6)), x),
        (st.lerp(input=x, end=x + 2, weight=0.5), x + 1), (st.outer(input=x, vec2=x), x[:, None] * x), (m.narrow(dim=1, start=1, length=2), m[:, 1:]),
    ]:
        assert given.dtype == wanted.dtype and st.equal(given, wanted)
    assert [list(t.shape) for t in x.split(split_size=4)] == [[4], [2]] == [list(t.shape) for t in st.split(tensor=x, split_size_or_sections=4)]
    drawn = st.randint(low=3, high=5, size=(100,))
    assert drawn.shape == (100,) and set(drawn.tolist()) == {3, 4}
    assert st.topk(input=x, k=2).indices.tolist() == [5, 4] and x.view(dtype=st.int32).dtype == st.int32
    with pytest.raises(TypeError, match="no argument 'nonsense'"):
        st.add(x, x, nonsense=1)
    with pytest.raises(TypeError, match="'dims'"):
        st.reshape(x, dims=(2, 3))


def test_the_table_is_pytorchs():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: its schemas are compared where it is")
    import torch_signatures

    assert torch.__version__ and torch_signatures.of_torch(set(_signatures.table())) == _signatures.table()


# ---- out=


def test_out_takes_results_everywhere():
    x, m = st.tensor([4.0, 9.0]), st.tensor([[1.0, 5.0], [3.0, 2.0]])
    out = st.empty(0)
    assert st.sqrt(x, out=out) is out and out.tolist() == [2, 3]
    for call in (lambda o: st.add(x, x, out=o), lambda o: st.mul(x, 2, out=o), lambda o: st.cat([x], out=o) * 2, lambda o: st.clamp(x, 8, 18, out=o).add_(0)):
        call(st.empty(0))
    assert st.add(x, x, out=out) is out and out.tolist() == [8, 18]
    values, where = st.empty(2), st.empty(2, dtype=st.int64)
    found = st.max(m, 1, out=(values, where))
    assert found.values is values and values.tolist() == [5, 3] and where.tolist() == [1, 0]
    assert st.sort(x, descending=True, out=(values, where))[1] is where and where.tolist() == [1, 0]
    assert st.zeros(2, 2, out=st.empty(0)).shape == (2, 2) and st.matmul(m, m, out=m).tolist() == [[16, 15], [9, 19]]  # its own input
    assert st.mean(x, dim=0, out=st.empty(())).item() == 6.5 and st.linalg.norm(x, out=st.empty(0)).item() == pytest.approx(97**0.5)
    double = st.empty(2, dtype=st.float64)
    assert st.sum(m, 0, out=double).dtype == st.float64 and st.sum(m, 0, out=None).dtype == st.float32
    with pytest.warns(UserWarning, match="resized"):
        st.sqrt(x, out=st.empty(3))
    with pytest.raises(st.DTypeError, match="cannot be cast"):
        st.sqrt(x, out=st.empty(2, dtype=st.int64))
    with pytest.raises(st.AutogradError, match="differentiated through out="):
        st.sqrt(st.ones(2, requires_grad=True), out=st.empty(2))
    with pytest.raises(TypeError, match="must be a Tensor"):
        st.sqrt(x, out=3)
    with pytest.raises(TypeError, match="out has 2 tensors"):
        st.sqrt(x, out=[x, x])


# ---- NumPy, einops


def test_numpys_functions_take_tensors():
    a, x = np.array([1.0, 4.0]), st.tensor([1.0, 4.0], requires_grad=True)
    y = np.sqrt(x)
    assert isinstance(y, st.Tensor) and y.tolist() == [1, 2]
    y.sum().backward()
    assert x.grad.tolist() == [0.5, 0.25]
    x = x.detach()
    for given, wanted in [(a * x, [1, 16]), (x * a, [1, 16]), (a - x, [0, 0]), (2 ** x, [2, 16]), (np.maximum(a, x), [1, 4]), (a / x, [1, 1]),
                          (np.exp2(x), [2, 16]), (np.cbrt(st.tensor([8.0])), [2]), (a > x, [False, False]), (x == a, [True, True])]:
        assert isinstance(given, st.Tensor) and given.tolist() == wanted
    assert (a * x).dtype == st.float64 and (a.astype("f") * x).dtype == st.float32 and (np.eye(2) @ x).tolist() == [1, 4]
    assert (x @ np.eye(2)).tolist() == [1, 4] and float(np.sum(x)) == 5 and float(np.mean(x)) == 2.5 and np.float32(2) * x.sum() == 10
    a += x
    assert isinstance(a, np.ndarray) and a.tolist() == [2, 8] and np.add.reduce(x).item() == 5
    x += np.ones(2, np.float32)
    assert x.tolist() == [2, 5]


def test_einops_works():
    einops = pytest.importorskip("einops", reason="einops is not installed")
    x = st.arange(24.0).reshape(2, 3, 4)
    assert st.equal(einops.rearrange(x, "b h w -> b (w h)"), x.transpose(1, 2).reshape(2, 12))
    assert st.equal(einops.reduce(x, "b h w -> b w", "mean"), x.mean(1)) and st.equal(einops.reduce(x, "b h w -> b", "max"), x.amax([1, 2]))
    assert st.equal(einops.repeat(x, "b h w -> b (h 2) w"), x.repeat_interleave(2, 1))
    assert st.equal(einops.einsum(x, x, "b h w, b k w -> b h k"), x @ x.mT)
    packed, shapes = einops.pack([x, x[:, 0]], "b * w")
    assert packed.shape == (2, 4, 4) and st.equal(einops.unpack(packed, shapes, "b * w")[1], x[:, 0])


# ---- switches


@pytest.fixture
def said(monkeypatch):
    monkeypatch.setattr(_once, "_said", set())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def test_switches_say_once_what_happens_instead(said):
    import strata.backends.cudnn as cudnn

    assert cudnn is st.backends.cudnn and not cudnn.is_available()
    cudnn.deterministic = True  # it is
    assert not said
    cudnn.benchmark = True
    cudnn.benchmark = True
    assert [str(w.message) for w in said] == ["backends.cudnn.benchmark = True changes nothing: the engine chooses its convolutions by their "
                                              "shapes, without trying them out"]
    cudnn.benchmark = False
    with cudnn.flags(deterministic=False):
        assert cudnn.deterministic is False
    assert cudnn.deterministic is True and len(said) == 2
    assert cudnn.allow_tf32 is True and cudnn.fp32_precision == "tf32"  # the engine's own switch, on as in PyTorch
    with cudnn.flags(allow_tf32=False):
        assert cudnn.fp32_precision == "ieee" and st._core.allow_tf32_convolutions() is False
    assert cudnn.allow_tf32 is True and len(said) == 2
    with pytest.raises(ValueError, match="tf32 or ieee is wanted"):
        cudnn.fp32_precision = "bf16"
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        pass
    st.backends.cuda.enable_flash_sdp(False)
    assert len(said) == 3 and "one kernel of attention" in str(said[2].message) and not st.backends.cuda.flash_sdp_enabled()
    st.backends.cuda.enable_flash_sdp(True)
    with pytest.raises(AttributeError, match="no setting 'nonsense'"):
        cudnn.nonsense = 1


@pytest.mark.parametrize("use", [
    lambda x, f: x.to(memory_format=f), lambda x, f: x.contiguous(memory_format=f), lambda x, f: x.clone(memory_format=f),
    lambda x, f: st.empty_like(x, memory_format=f).copy_(x), lambda x, f: st.zeros(*x.shape, memory_format=f) + x,
    lambda x, f: x.double().to(st.float32, memory_format=f), lambda x, f: x.to("cpu", copy=True, memory_format=f),
])
def test_memory_formats_order_the_elements(use):
    x = st.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).float()
    y = use(x, st.channels_last)
    assert y.stride() == (60, 1, 15, 3) and y.is_contiguous(memory_format=st.channels_last) and not y.is_contiguous()
    assert st.equal(x, y)
    back = use(y, st.contiguous_format)
    assert back.is_contiguous() and not back.is_contiguous(memory_format=st.channels_last) and st.equal(back, x)
    with pytest.raises(RuntimeError, match="needs a tensor of 5 dimensions"):
        use(x, st.channels_last_3d)


def test_memory_formats_of_modules_and_gradients():
    # No bias before the norm: its gradient is nothing but rounding, of which AdamW makes whole steps.
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    last = copy.deepcopy(net).to(memory_format=st.channels_last)
    assert last[0].weight.is_contiguous()  # the images' layout decides
    x = st.randn(2, 3, 8, 8)
    images = x.to(memory_format=st.channels_last)
    assert images.to(memory_format=st.channels_last) is images or images.to(memory_format=st.channels_last).data_ptr() == images.data_ptr()
    assert last[0](images).is_contiguous(memory_format=st.channels_last) and last[:4](images).is_contiguous(memory_format=st.channels_last)
    optimizers = [st.optim.AdamW(m.parameters(), lr=0.01) for m in (net, last)]
    for _ in range(4):
        losses = []
        for m, optimizer, given in ((net, optimizers[0], x), (last, optimizers[1], images)):
            optimizer.zero_grad()
            loss = m(given).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for a, b in zip(net.parameters(), last.parameters()):
        assert a.shape == b.shape and st.allclose(a, b, 1e-3, 1e-4)
    saved = last.state_dict()
    net.load_state_dict(saved)
    assert all(st.equal(a, b) for a, b in zip(net.state_dict().values(), saved.values()))
    leaf = st.randn(1, 2, 2, 2).requires_grad_()
    (leaf.contiguous(memory_format=st.channels_last) * st.arange(8).reshape(1, 2, 2, 2)).sum().backward()
    assert leaf.grad.flatten().tolist() == list(range(8))
    with pytest.raises(TypeError, match="memory_format"):
        leaf.contiguous(memory_format=3)


def test_compile_and_jit_hand_the_function_back(said):
    net = nn.Linear(2, 2)
    assert st.compile(net) is net and st.compile(mode="max-autotune")(len) is len and st.jit.script(net) is net and st.jit.trace(net, st.ones(2)) is net
    assert len(said) == 2 and "nothing is compiled" in str(said[0].message) and "no TorchScript" in str(said[1].message)
    with pytest.raises(RuntimeError, match="no TorchScript"):
        st.jit.load("x.pt")


# ---- types, containers, samplers


def test_types_by_pytorchs_names():
    x = st.ones(2, dtype=st.float64)
    assert x.type() == "torch.DoubleTensor" and x.type(st.FloatTensor).dtype == st.float32 and x.type("torch.LongTensor").dtype == st.int64
    assert isinstance(x, st.DoubleTensor) and not isinstance(x, st.FloatTensor) and not isinstance(x, st.cuda.DoubleTensor) and x.type(st.int8).dtype == st.int8
    assert st.FloatTensor(2, 3).shape == (2, 3) and st.LongTensor([1]).dtype == st.int64 and st.FloatTensor(np.ones(2)).type() == "torch.FloatTensor"
    assert st.Tensor([1, 2]).dtype == st.float32 and st.Tensor(np.array([1, 2])).dtype == st.float32 and st.Tensor(st.Size([2, 3])).shape == (2, 3)
    assert st.Tensor([True]).dtype == st.float32 and st.Tensor(2, 3).shape == (2, 3) and st.Tensor((2, 3)).tolist() == [2, 3]


def test_a_module_that_takes_anothers_place_keeps_it():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)

    net = Net()
    net.a = nn.Linear(2, 3, bias=False)
    assert [n for n, _ in net.named_children()] == ["a", "b", "c"] and nn.Sequential(*net.children())(st.ones(1, 2)).shape == (1, 1)
    net.b = None
    net.b = nn.Tanh()
    assert [n for n, _ in net.named_children()] == ["a", "b", "c"]
    parts = nn.ModuleList([None, nn.Linear(1, 1), None])
    assert len(parts) == 3 and parts[0] is None and [p is None for p in parts] == [True, False, True] and parts[-1] is None
    parts[0] = nn.ReLU()
    assert list(parts.state_dict()) == ["1.weight", "1.bias"] and parts.pop() is None and len(parts) == 2


def test_a_sampler_with_replacement_draws_as_it_goes():
    from strata.utils.data import RandomSampler

    first = [i for _, i in zip(range(1000), RandomSampler(range(10), True, 10**10, seed=3))]
    assert set(first) == set(range(10))
    size = (1 << 16) + 100  # across the end of a part, the numbers of one call
    whole = st.ops.randint(0, 7, [size], key=(4, 0)).tolist()
    assert list(RandomSampler(range(7), True, size, seed=3)) == whole


def test_norms_without_bias_and_other_arguments():
    for norm, shape in [(nn.BatchNorm1d(3, bias=False), (2, 3)), (nn.BatchNorm2d(3, bias=False), (2, 3, 2, 2)), (nn.GroupNorm(1, 3, bias=False), (2, 3, 4)),
                        (nn.InstanceNorm1d(3, affine=True, bias=False), (2, 3, 4)), (nn.LayerNorm(3, bias=False), (2, 3)), (nn.SyncBatchNorm(3, bias=False), (2, 3))]:
        assert norm.bias is None and norm.weight is not None and norm(st.randn(*shape)).shape == shape
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)))
    assert isinstance(net[1], nn.SyncBatchNorm) and net(st.ones(1, 1, 2, 2)).shape == (1, 2, 2, 2) and nn.Hardtanh(min_value=-2).min_val == -2
    assert nn.init._calculate_fan_in_and_fan_out(st.ones(4, 3, 2, 2)) == (12, 16) and nn.init._calculate_correct_fan(st.ones(4, 3), "fan_out") == 4


def test_storage_is_the_memory_of_all_views():
    x = st.arange(6.0).reshape(2, 3)
    s = x.t()[1:].storage()
    assert s.data_ptr() == x.storage().data_ptr() == x.data_ptr() and s.tolist() == [0, 1, 2, 3, 4, 5] and len(s) == 6 and s[2] == 2
    s[0] = 7.0
    assert x[0, 0].item() == 7 and x.untyped_storage().nbytes() == 24 and x.untyped_storage().data_ptr() == x.data_ptr()
    assert x.clone().storage().data_ptr() != x.data_ptr() and x.storage().dtype == st.float32 and x[0].storage() == x[1].storage()


# ---- paths, one process


@pytest.mark.parametrize("path,name", [
    ("utils._pytree", "tree_map"), ("utils.data.dataloader", "DataLoader"), ("utils.data.dataset", "Dataset"), ("utils.data.sampler", "RandomSampler"),
    ("utils.data.distributed", "DistributedSampler"), ("nn.parallel", "DistributedDataParallel"), ("autograd.function", "Function"),
    ("autograd.functional", "jacobian"), ("autograd.graph", "saved_tensors_hooks"), ("cuda.amp", "GradScaler"), ("backends.cudnn", "benchmark"),
    ("optim.optimizer", "Optimizer"), ("optim.adamw", "AdamW"), ("distributions.normal", "Normal"), ("nn.modules.batchnorm", "_BatchNorm"),
    ("utils.hooks", "RemovableHandle"), ("utils.tensorboard", "SummaryWriter"), ("signal.windows", "hann"), ("types", "Number"), ("accelerator", "is_available"),
    ("utils.checkpoint", "checkpoint"), ("nn.common_types", "_size_2_t"), ("cuda.amp.grad_scaler", "GradScaler"), ("version", "cuda"),
])
def test_pytorchs_paths_are_there(path, name):
    assert hasattr(importlib.import_module(f"strata.{path}"), name)


def test_a_group_of_one_process(monkeypatch):
    import strata.distributed as dist

    with pytest.raises(ValueError, match="not been initialized"):
        dist.get_rank()
    with pytest.raises(ValueError, match="rank 1 of 4"):
        dist.init_process_group("nccl", world_size=4, rank=1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="rank 0 of 2"):
        dist.init_process_group()
    monkeypatch.delenv("WORLD_SIZE")
    dist.init_process_group("gloo", rank=0, world_size=1)
    try:
        x, parts = st.ones(2), [st.zeros(2)]
        assert dist.is_initialized() and (dist.get_rank(), dist.get_world_size()) == (0, 1) and dist.get_backend() == "gloo"
        assert dist.all_reduce(x) is None and x.tolist() == [1, 1] and dist.broadcast(x, 0, async_op=True).wait()
        dist.all_gather(parts, x)
        assert parts[0].tolist() == [1, 1]
        with pytest.raises(ValueError, match="no rank 1"):
            dist.broadcast(x, src=1)
        net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
        with net.no_sync():
            net(st.ones(1, 2)).sum().backward()
        assert list(net.state_dict()) == ["module.weight", "module.bias"] and net.module.weight.grad.tolist() == [[1, 1]]
    finally:
        dist.destroy_process_group()
    assert nn.DataParallel(nn.Linear(2, 1))(st.ones(3, 2)).shape == (3, 1) and not dist.is_initialized()
    with pytest.raises(ValueError, match="one device"):
        nn.DataParallel(nn.Linear(2, 1), device_ids=[0, 1])


def test_pytree_takes_apart_and_puts_together():
    from strata.utils import _pytree as pytree

    tree = {"a": [1, (2, 3)], "b": st.Size([4])}
    leaves, spec = pytree.tree_flatten(tree)
    assert leaves == [1, 2, 3, st.Size([4])] and pytree.tree_unflatten(leaves, spec) == tree and spec.num_leaves == 4
    assert pytree.tree_map(lambda a, b: a + b, [1, {"x": 2}], [10, {"x": 20}]) == [11, {"x": 22}]
    assert pytree.tree_map_only(int, lambda v: -v, [1, "a"]) == [-1, "a"]
    with pytest.raises(ValueError, match="leaves"):
        pytree.tree_unflatten([1], spec)


def test_vmap_is_the_loop():
    w, x = st.randn(3, 4), st.randn(5, 4)
    assert st.allclose(st.vmap(lambda v: w @ v)(x), x @ w.T) and st.allclose(st.func.vmap(st.dot, in_dims=(0, None))(x, w[0]), x @ w[0])
    y = st.vmap(lambda a, b: {"s": a + b, "p": a * b}, in_dims=(1, 0), out_dims={"s": 1, "p": 0})(x.T, x)
    assert st.equal(y["s"], (2 * x).T) and st.equal(y["p"], x * x)
    assert st.allclose(st.vmap(st.func.grad(lambda v: (v**3).sum()))(x), 3 * x * x) and st.vmap(st.vmap(st.sum))(st.ones(2, 3, 4)).shape == (2, 3)
    drawn = st.vmap(lambda v: v + st.rand(2), randomness="same")(st.zeros(3, 2))
    assert st.equal(drawn[0], drawn[1]) and st.equal(drawn[0], drawn[2])
    with pytest.raises(ValueError, match="sizes to map over differ"):
        st.vmap(st.add)(st.ones(2), st.ones(3))
    a = st.tensor([1.0, 2.0], requires_grad=True)
    (rows,) = st.autograd.grad(a * a, a, st.eye(2), is_grads_batched=True)
    assert rows.tolist() == [[2, 0], [0, 4]]


# ---- profiler, tensorboard


def test_the_profiler_times_ops_and_ranges(tmp_path):
    from strata.profiler import ProfilerActivity, profile, record_function, schedule

    net, x = nn.Linear(4, 4), st.ones(2, 4)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=1)) as prof:
        for _ in range(6):
            with record_function("forward"):
                y = net(x)
            y.sum().backward()
            prof.step()
    rows = {r.key: r for r in prof.key_averages()}
    assert rows["forward"].count == 2 and rows["forward"].is_user_annotation and rows["linear"].count == 2
    assert rows["forward"].cpu_time_total >= rows["linear"].cpu_time_total >= rows["linear"].self_cpu_time_total >= 0
    table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=3)
    assert "forward" in table and "Self CPU time total" in table and "# of Calls" in table
    with pytest.raises(ValueError, match="sort_by"):
        prof.key_averages().table(sort_by="nonsense")
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"forward", "linear"} <= {e["name"] for e in events} and all(e["dur"] >= 0 for e in events)
    assert [schedule(wait=1, warmup=0, active=2)(i).name for i in range(4)] == ["NONE", "RECORD", "RECORD_AND_SAVE", "NONE"]


def _crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_summary_writer_writes_tensorboards_files(tmp_path):
    from strata.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path / "run") as writer:
        writer.add_scalar("loss", st.tensor(0.5), 7, walltime=2.0)
        writer.add_text("note", "hello")
        writer.add_histogram("w", st.arange(10.0), 1)
        writer.add_image("img", st.rand(3, 4, 5), 2)
        writer.add_scalars("both", {"a": 1, "b": 2}, 3)
        with pytest.raises(AttributeError, match="add_audio"):
            writer.add_audio("x", st.ones(2))
    (path,) = (tmp_path / "run").glob("events.out.tfevents.*")
    raw, events = path.read_bytes(), []
    while raw:
        (size,) = struct.unpack("<Q", raw[:8])
        assert struct.unpack("<I", raw[8:12])[0] == _crc32c(raw[:8]) and struct.unpack("<I", raw[12 + size:16 + size])[0] == _crc32c(raw[12:12 + size])
        events.append(raw[12:12 + size])
        raw = raw[16 + size:]
    assert len(events) == 5 and b"brain.Event:2" in events[0]
    assert events[1] == b"\x09" + struct.pack("<d", 2.0) + b"\x10\x07" + b"\x2a\x0d\x0a\x0b\x0a\x04loss\x15" + struct.pack("<f", 0.5)
    assert b"hello" in events[2] and b"\x89PNG" in events[4] and (tmp_path / "run" / "both_a").is_dir() and zlib.crc32(b"") == 0


# ---- windows, masks


def test_windows_have_scipys_numbers():
    close = np.testing.assert_allclose
    close(st.hann_window(5).numpy(), [0, 0.345492, 0.904508, 0.904508, 0.345492], atol=1e-6)
    close(st.hamming_window(4, periodic=False).numpy(), [0.08, 0.77, 0.77, 0.08], atol=1e-6)
    close(st.blackman_window(5, False).numpy(), [0, 0.34, 1, 0.34, 0], atol=1e-6)
    close(st.kaiser_window(4, False, beta=5.0).numpy(), np.kaiser(4, 5.0), rtol=1e-5)
    close(st.signal.windows.kaiser(9, beta=14.0, dtype=st.float64).numpy(), np.kaiser(9, 14.0), rtol=1e-12)
    close(st.bartlett_window(5, False).numpy(), [0, 0.5, 1, 0.5, 0], atol=1e-7)
    close(st.signal.windows.gaussian(3, std=0.5).numpy(), [np.exp(-2), 1, np.exp(-2)], rtol=1e-6)
    close(st.signal.windows.general_cosine(3, a=[0.5, 0.5]).numpy(), [0, 1, 0], atol=1e-7)
    close(st.signal.windows.exponential(3, tau=2.0).numpy(), [np.exp(-0.5), 1, np.exp(-0.5)], rtol=1e-6)
    close(st.signal.windows.nuttall(5).numpy()[1], 0.2269824, atol=1e-6)
    assert st.hann_window(0).shape == (0,) and st.hann_window(1).tolist() == [1] and st.hann_window(3, dtype=st.float64, requires_grad=True).requires_grad


def test_masked_reductions_leave_out_what_the_mask_drops():
    x, keep = st.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), st.tensor([[True, False, True], [False, False, False]])
    m = st.masked
    assert m.sum(x, 1, mask=keep).tolist() == [4, 0] and m.prod(x, 1, mask=keep).tolist() == [3, 1] and m.amax(x, 1, mask=keep).tolist() == [3, -np.inf]
    assert m.mean(x, 1, mask=keep)[0].item() == 2 and np.isnan(m.mean(x, 1, mask=keep)[1].item()) and m.var(x, 1, mask=keep)[0].item() == 2
    assert m.softmax(x, 1, mask=keep)[0, 1].item() == 0 and m.softmax(x, 1, mask=keep)[0].sum().item() == pytest.approx(1)
    assert m.argmin(x, 1, mask=keep)[0].item() == 0 and m.cumsum(x, 1, mask=keep).tolist() == [[1, 1, 4], [0, 0, 0]] and m.sum(x).item() == 21
    with pytest.raises(TypeError, match="must be bool"):
        m.sum(x, 1, mask=x)


def test_what_is_empty_behaves_as_pytorchs():
    assert [c.shape for c in st.zeros(0, 3).chunk(3)] == [(0, 3)] * 3 and [c.shape for c in st.zeros(3, 0).split(0, 1)] == [(3, 0)]
    x = st.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert st.take_along_dim(x, st.tensor([[-1], [0]]), dim=1).tolist() == [[3.0], [4.0]]
    for norm, shape in ((st.nn.BatchNorm1d(3), (0, 3)), (st.nn.BatchNorm1d(3, track_running_stats=False).eval(), (0, 3)), (st.nn.BatchNorm2d(3), (0, 3, 4, 4))):
        for _ in range(2):
            y = norm(st.zeros(*shape))
            y.sum().backward()
            assert y.shape == shape and norm.weight.grad.tolist() == [0.0] * 3 and (norm.running_mean is None or norm.running_mean.tolist() == [0.0] * 3)
            norm.eval()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        st.nn.BatchNorm1d(3)(st.zeros(1, 3))
