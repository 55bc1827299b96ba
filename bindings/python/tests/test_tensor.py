import copy
import gc
import math
import operator
import pickle

import numpy as np
import pytest

import strata as st


def near(a, b, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(a.detach()) if isinstance(a, st.Tensor) else a, b, rtol=tolerance, atol=tolerance)


def test_attributes():
    x = st.zeros(2, 3, dtype=st.bfloat16)
    assert x.shape == (2, 3) and x.ndim == x.dim() == 2 and x.numel() == 6 and x.size(1) == 3 and x.size() == (2, 3)
    assert x.dtype is st.bfloat16 and x.device == st.device("cpu") == "cpu" and x.itemsize == 2 and x.nbytes == 12
    assert x.T.shape == (3, 2) and x.mT.shape == (3, 2) and x.stride() == (3, 1) and x.is_contiguous()
    assert not x.T.is_contiguous() and x.is_leaf and x.grad is None and x.grad_fn is None and not x.requires_grad
    assert not x.is_cuda and len(x) == 2
    with pytest.raises(AttributeError):
        x.shape = (3, 2)


def test_tiers():
    x = st.arange(12, dtype=st.float32).reshape(3, 4)
    assert x.tier == "host" and x.to(tier="own") is not None and x.to(tier="host").tier == "host"
    y = x.to(tier="disk")
    assert y.tier == "disk" and y.t().tier == "disk" and y.device == x.device
    assert y.tolist() == x.tolist() and y[2, 3].item() == 11 and repr(y) == repr(x)
    assert (y + x).tolist() == (x + x).tolist() and y.to(tier="own").tier == "host"
    assert y.to(st.float64, tier="disk").tier == "disk"
    with st._core.TierScope("disk"):
        assert st.zeros(3).tier == "disk"
    w = x.clone().requires_grad_()
    (w.to(tier="disk") * 2).sum().backward()
    assert w.grad.tolist() == [[2.0] * 4] * 3
    with pytest.raises(ValueError, match="there is no memory 'attic' in this program; there are own, host, disk"):
        x.to(tier="attic")
    with pytest.raises(st.StrataError, match="is not resident"):
        y.data_ptr()


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
             operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("op", OPERATORS)
def test_operators_agree_with_numpy(op):
    a, b = np.array([[1.5, -2.0], [3.0, 0.5]], np.float32), np.array([[2.0, 3.0], [-1.0, 2.0]], np.float32)
    x, y = st.tensor(a), st.tensor(b)
    with np.errstate(invalid="ignore"):
        near(op(x, y), op(a, b))
        near(op(x, 2), op(a, np.float32(2)))
        near(op(2.5, y), op(np.float32(2.5), b))
        near(op(x, np.float64(2)), op(a, np.float32(2)))
    assert isinstance(op(np.float32(2), y), st.Tensor)


def test_operators_on_integers_and_bits():
    a, b = np.array([6, 3, 12]), np.array([3, 5, 2])
    x, y = st.tensor(a), st.tensor(b)
    for op in (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.floordiv, operator.mod):
        assert op(x, y).tolist() == op(a, b).tolist()
        assert op(x, 2).tolist() == op(a, 2).tolist()
    assert (~x).tolist() == (~a).tolist() and (-x).tolist() == [-6, -3, -12] and abs(-x).tolist() == [6, 3, 12]
    assert (1 | x).tolist() == (1 | a).tolist() and (+x) is x
    assert (x / y).dtype is st.float32 and (x + 1.0).dtype is st.float32 and (x + 1).dtype is st.int64


def test_in_place_operators_keep_the_object():
    x = st.ones(3)
    same = x
    x += 1
    x *= 3
    x -= st.ones(3)
    x /= 2
    x **= 2
    assert x is same and x.tolist() == [6.25] * 3
    y = st.tensor([7, 8])
    z = y
    y //= 2
    y %= 3
    y |= 4
    assert y is z and y.tolist() == [4 | 0, 4 | 1]
    assert same.add_(1) is same and same.zero_() is same and same.tolist() == [0, 0, 0]


def test_matmul():
    a, b = np.random.rand(3, 4).astype(np.float32), np.random.rand(4, 2).astype(np.float32)
    near(st.tensor(a) @ st.tensor(b), a @ b)
    with pytest.raises(TypeError):
        st.ones(2, 2) @ 3
    with pytest.raises(st.ShapeError, match="matmul"):
        st.ones(2, 3) @ st.ones(2, 3)


def test_numbers_and_truth():
    x = st.tensor(3)
    assert int(x) == 3 and float(x) == 3.0 and [0, 1, 2, 7][x] == 7 and bool(x) and not bool(st.tensor(0.0))
    assert x.item() == 3 and isinstance(x.item(), int) and isinstance(st.tensor(2.5).item(), float)
    assert st.tensor(True).item() is True
    assert f"{st.tensor(2.5):.2f}" == "2.50" and f"{st.ones(2)}" == "tensor([1., 1.])"
    with pytest.raises(ValueError, match="ambiguous"):
        bool(st.ones(2))
    with pytest.raises(TypeError):
        [1, 2][st.tensor(1.0)]
    with pytest.raises(ValueError):
        st.ones(2).item()
    with pytest.raises(TypeError):
        len(st.tensor(1))
    with pytest.raises(TypeError):
        iter(st.tensor(1))


def test_iteration_membership_hash():
    x = st.arange(6).reshape(2, 3)
    assert [row.tolist() for row in x] == [[0, 1, 2], [3, 4, 5]]
    assert 4 in x and 9 not in x
    a, b = x
    assert b.tolist() == [3, 4, 5]
    seen = {x: 1}
    assert seen[x] == 1 and hash(x) == hash(x)
    assert (x == "text") is False and (x != None) is True  # noqa: E711


def test_repr_is_pytorchs():
    assert repr(st.tensor([1.0, 2.5])) == "tensor([1.0000, 2.5000])"
    assert repr(st.tensor([[1, 2], [3, 4]])) == "tensor([[1, 2],\n        [3, 4]])"
    assert repr(st.zeros(2, dtype=st.float64)) == "tensor([0., 0.], dtype=strata.float64)"
    x = st.ones(1, requires_grad=True)
    assert repr(x) == "tensor([1.], requires_grad=True)" and "grad_fn=<mul>" in repr(x * x)
    assert repr(st.tensor(True)) == "tensor(True)"
    assert repr(st.device("cuda:1")) == "device(type='cuda', index=1)" and repr(st.float32) == "strata.float32"


CASES = [
    np.s_[1], np.s_[-1], np.s_[1:3], np.s_[::2], np.s_[..., 1], np.s_[None], np.s_[:, None, 1], np.s_[1, 2, 3],
    np.s_[[0, 2]], np.s_[[0, 2], [1, 1]], np.s_[:, [0, 1]], np.s_[1:, ..., ::3], np.s_[()], np.s_[np.array([1, 0])],
    np.s_[:, :, [True, False, True, False]], np.s_[1, [0, 1]], np.s_[-3:-1, 1:1], np.s_[...],
]


@pytest.mark.parametrize("key", CASES, ids=str)
def test_indexing_agrees_with_numpy(key):
    a = np.arange(36, dtype=np.float32).reshape(3, 3, 4)
    x = st.tensor(a)
    assert np.array_equal(np.asarray(x[key]), a[key])
    b, y = a.copy(), x.clone()
    b[key] = -1
    y[key] = -1
    assert np.array_equal(np.asarray(y), b)
    b[key] = np.asarray(a[key]) * 2
    y[key] = x[key] * 2
    assert np.array_equal(np.asarray(y), b)


def test_masks_and_tensors_as_indices():
    x = st.arange(6.0).reshape(2, 3)
    assert x[x > 2].tolist() == [3, 4, 5]
    x[x > 2] = 0
    assert x.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert x[st.tensor([1, 0]), st.tensor([0, 1])].tolist() == [0, 1]
    x[0] = st.tensor([7.0, 8, 9])
    x[:, 0] += 1
    assert x.tolist() == [[8, 8, 9], [1, 0, 0]]
    with pytest.raises(IndexError, match="out of range"):
        x[5]
    with pytest.raises(IndexError):
        x[0, 0, 0]
    with pytest.raises(TypeError):
        x[1.5]
    with pytest.raises(TypeError):
        del x[0]


def test_factories():
    assert st.tensor([[1, 2], [3, 4]]).dtype is st.int64 and st.tensor([1, 2.0]).dtype is st.float32
    assert st.tensor([True, False]).dtype is st.bool and st.tensor([]).shape == (0,) and st.tensor([[], []]).shape == (2, 0)
    assert st.tensor(np.arange(3, dtype=np.int16)).dtype is st.int16 and st.tensor(np.float64(2)).dtype is st.float64
    assert st.tensor([st.tensor(1.0), st.tensor(2.0)]).tolist() == [1, 2]
    assert st.tensor([np.array([1, 2]), np.array([3, 4])]).tolist() == [[1, 2], [3, 4]]
    assert st.tensor(range(3)).tolist() == [0, 1, 2]
    assert st.zeros(2, 3).shape == st.zeros((2, 3)).shape == st.zeros([2, 3]).shape == (2, 3) and st.ones(()).shape == ()
    assert st.arange(5).tolist() == [0, 1, 2, 3, 4] and st.arange(1, 2, 0.5).tolist() == [1.0, 1.5]
    assert st.full((2,), 7).dtype is st.int64 and st.eye(2).tolist() == [[1, 0], [0, 1]]
    assert st.linspace(0, 1, 3).tolist() == [0, 0.5, 1]
    assert st.zeros_like(st.ones(2, dtype=st.int8)).dtype is st.int8 and st.randn_like(st.ones(2, 2)).shape == (2, 2)
    assert st.rand(3, requires_grad=True).requires_grad
    st.manual_seed(3)
    a = st.randn(4)
    st.manual_seed(3)
    assert st.equal(a, st.randn(4)) and sorted(st.randperm(5).tolist()) == [0, 1, 2, 3, 4]
    assert st.randint(3, (50,)).max() <= 2 and st.randint(5, 7, (50,)).min() >= 5
    assert st.zeros(2, device="meta").is_meta
    with st.default_device("meta"):
        assert st.zeros(3).is_meta
    assert not st.zeros(3).is_meta
    with pytest.raises(ValueError, match="length"):
        st.tensor([[1, 2], [3]])
    with pytest.raises(TypeError):
        st.tensor("text")
    with pytest.raises(TypeError):
        st.tensor([object()])
    with pytest.raises(OverflowError):
        st.tensor([2**70])


def test_conversions():
    x = st.tensor([1.7, -2.2])
    assert x.long().tolist() == [1, -2] and x.int().dtype is st.int32 and x.double().dtype is st.float64
    assert x.half().dtype is st.float16 and x.bfloat16().dtype is st.bfloat16 and x.bool().tolist() == [True, True]
    assert x.to(st.float32) is not None and x.to("float64").dtype is st.float64 and x.to("cpu", st.int8).dtype is st.int8
    assert x.to(dtype=st.int64, device="cpu").tolist() == [1, -2] and x.to(st.ones(1, dtype=st.float64)).dtype is st.float64
    assert x.to(np.float64).dtype is st.float64 and x.type(st.int16).dtype is st.int16
    with pytest.raises(TypeError):
        x.to(3.5)
    with pytest.raises(st.DeviceError):
        x.to("cuda:63")


def test_shapes_methods():
    x = st.arange(24).reshape(2, 3, 4)
    assert x.view(6, -1).shape == (6, 4) and x.view((4, 6)).shape == (4, 6) and x.permute(2, 0, 1).shape == (4, 2, 3)
    assert x.permute((2, 0, 1)).shape == (4, 2, 3) and x.transpose(0, 2).shape == (4, 3, 2) and x.flatten(1).shape == (2, 12)
    assert x.unsqueeze(0).shape == (1, 2, 3, 4) and x[:1].squeeze().shape == (3, 4) and x.expand(5, 2, 3, 4).shape == (5, 2, 3, 4)
    assert x.repeat(2, 1, 1).shape == (4, 3, 4) and x.reshape([4, 6]).shape == (4, 6) and x.chunk(2, 1)[0].shape == (2, 2, 4)
    assert [p.shape[2] for p in x.split([1, 3], 2)] == [1, 3] and len(x.unbind(1)) == 3 and x.narrow(1, 1, 2).shape == (2, 2, 4)
    assert x.movedim(0, 2).shape == (3, 4, 2) and x.unflatten(2, (2, 2)).shape == (2, 3, 2, 2)
    assert st.cat([x, x], dim=1).shape == (2, 6, 4) and st.stack((x, x)).shape == (2, 2, 3, 4)
    assert st.zeros(1, 2, 1).squeeze((0, 2)).shape == (2,)


def test_reductions():
    a = np.random.rand(3, 4).astype(np.float32)
    x = st.tensor(a)
    near(x.sum(), a.sum(), 1e-5)
    near(x.sum(1), a.sum(1), 1e-5)
    near(x.sum(dim=(0, 1), keepdim=True), a.sum(keepdims=True), 1e-5)
    near(x.mean(-1), a.mean(-1), 1e-5)
    near(x.var(0), a.var(0, ddof=1), 1e-5)
    near(x.std(unbiased=False), a.std(), 1e-5)
    values, indices = x.max(1)
    near(values, a.max(1))
    assert indices.tolist() == a.argmax(1).tolist() == x.argmax(1).tolist() and x.max().item() == a.max()
    assert x.min(0).values.tolist() == a.min(0).tolist() and st.max(x, x + 1).equal(x + 1)
    near(x.norm(), np.linalg.norm(a), 1e-5)
    near(x.cumsum(0), a.cumsum(0), 1e-5)
    assert st.tensor([True, False]).any() and not st.tensor([True, False]).all()
    top = x.topk(2, dim=1)
    near(top.values, -np.sort(-a, 1)[:, :2])
    assert type(top).__name__ == "topk" and pickle.loads(pickle.dumps(top)).indices.equal(top.indices)


def test_keywords_and_aliases():
    x = st.ones(2, 3)
    assert st.softmax(x, dim=1).shape == st.softmax(input=x, dim=1).shape == x.softmax(-1).shape
    assert st.ops.amax(x, dims=[0]).shape == st.ops.amax(x, dim=0).shape == st.ops.amax(x, axis=0, keepdims=False).shape
    assert st.add(x, other=x, alpha=2).tolist() == [[3] * 3] * 2
    with pytest.raises(TypeError, match="there is no argument 'wrong'"):
        st.add(x, x, wrong=1)
    with pytest.raises(TypeError, match="given twice"):
        st.add(x, x, b=x)
    with pytest.raises(TypeError, match="'dim' is str"):
        st.ops.softmax(x, "0")
    with pytest.raises(TypeError, match="missing"):
        st.add(x)
    with pytest.raises(TypeError, match="takes"):
        st.ops.exp(x, 1, 2)
    with pytest.raises(TypeError):
        st.add(x, "1")


def test_errors_are_also_pythons():
    assert issubclass(st.ShapeError, ValueError) and issubclass(st.ShapeError, RuntimeError)
    assert issubclass(st.errors.IndexError, IndexError) and issubclass(st.errors.MemoryError, MemoryError)
    assert issubclass(st.errors.IoError, OSError) and issubclass(st.DTypeError, TypeError)
    assert issubclass(st.errors.ValueError, ValueError) and issubclass(st.AutogradError, st.StrataError)
    with pytest.raises(st.DTypeError, match="bitwise_and"):
        st.ones(2) & st.ones(2)
    with pytest.raises(MemoryError):
        st.empty(2**60, dtype=st.int8)
    with pytest.raises(IndexError, match="softmax: dim 5"):
        st.ones(2, 2).softmax(5)


def test_pickle_and_copies():
    for dtype in (st.float32, st.bfloat16, st.float16, st.int64, st.bool, st.uint8):
        x = (st.arange(6).reshape(2, 3) * 1).to(dtype)
        for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
            assert y.equal(x) and y.dtype is dtype and y.shape == (2, 3)
    w = st.ones(2, requires_grad=True)
    (w * 2).sum().backward()
    c = copy.deepcopy(w)
    assert c.requires_grad and c.grad.tolist() == [2, 2] and not c._same_tensor(w)
    assert pickle.loads(pickle.dumps(w)).requires_grad
    pair = copy.deepcopy([w, w])
    assert pair[0] is pair[1]
    with pytest.raises(st.AutogradError):
        copy.deepcopy(w * 2)
    assert pickle.loads(pickle.dumps((st.float32, st.device("cpu"), st.add, st.zeros(0, 2)))) [0] is st.float32


def test_subclasses_and_weak_references():
    import weakref

    class Named(st.Tensor):
        def __new__(cls, data, name):
            self = data._as_subclass(cls)
            self.name = name
            return self

    n = Named(st.ones(2), "n")
    assert isinstance(n, st.Tensor) and n.name == "n" and type(n + 1) is st.Tensor and st.Tensor(n)._same_tensor(n)
    gone = []
    weakref.finalize(n, gone.append, 1)
    del n
    gc.collect()
    assert gone == [1]


def test_data_attribute():
    x = st.ones(2, requires_grad=True)
    x.data = st.tensor([5.0, 6.0, 7.0])
    assert x.tolist() == [5, 6, 7] and x.requires_grad and not x.data.requires_grad
    x.data.mul_(2)
    assert x.tolist() == [10, 12, 14]
    x.grad = st.ones(3)
    assert x.grad.tolist() == [1, 1, 1]
    x.grad = None
    assert x.grad is None
    with pytest.raises(st.ShapeError):
        x.grad = st.ones(2)
    with pytest.raises(TypeError):
        x.grad = 1


def test_where_and_friends():
    x = st.tensor([1.0, -2.0])
    assert st.where(x > 0, x, 0.0).tolist() == [1, 0] and st.where(x > 0, 1.0, 0.0).tolist() == [1, 0]
    assert [i.tolist() for i in st.where(x > 0)] == [[0]]
    assert st.clamp(x, min=0).tolist() == [1, 0] and x.clamp(-1, 0.5).tolist() == [0.5, -1]
    assert x.clip(max=st.tensor(0.0)).tolist() == [0, -2]
    assert st.pow(2, x).tolist() == [2, 0.25] and st.div(st.tensor([7, -7]), 2, rounding_mode="floor").tolist() == [3, -4]
    assert st.unique(st.tensor([3, 1, 3])).tolist() == [1, 3]
    assert st.nonzero(x > 0).tolist() == [[0]] and st.einsum("i,i->", x, x).item() == 5
    assert math.isclose(st.var(x).item(), 4.5) and st.allclose(x, x + 1e-9)
    assert st.scatter(st.zeros(3), 0, st.tensor([1]), 5.0).tolist() == [0, 5, 0]
    assert st.dropout(x, 0.0).equal(x) and st.ops.dropout(st.ones(100), 0.5).sum() < 200
    a, b = st.meshgrid(x, x, indexing="ij")
    assert a.shape == b.shape == (2, 2)
    assert st.result_type(st.ones(1, dtype=st.int8), 2.5) is st.float32 and st.broadcast_shapes((2, 1), (3,)) == (2, 3)


def test_plain_op_objects():
    assert "softmax" in repr(st.ops.softmax) and st.exp.__name__ == "exp" and st.exp.schema == "exp(Tensor x) -> Tensor"
    assert "exp" in st.exp.__doc__

    class Holder:
        act = st.relu

    assert Holder().act(st.tensor([-1.0])).tolist() == [0]  # a function, no method
    assert st.Tensor.exp(st.zeros(1)).tolist() == [1] and st.zeros(1).exp().tolist() == [1]
    assert list(map(st.Tensor.neg, [st.ones(1)]))[0].tolist() == [-1]
    x = st.randn(3, 4, dtype=st.float64)
    near(st.ops.matmul.reference(x, x.T), np.asarray(x) @ np.asarray(x).T, 1e-12)
