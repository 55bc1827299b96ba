import ctypes
import gc
import sys
import weakref

import numpy as np
import pytest

import strata as st

DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_both_ways_without_copies(name):
    a = np.arange(6).reshape(2, 3).astype(name)
    x = st.from_numpy(a)
    assert x.dtype is getattr(st, name) and np.shares_memory(x.numpy(), a) and np.array_equal(x.numpy(), a)
    x[0, 0] = 1
    assert a[0, 0] == 1
    b = st.ones(2, 2, dtype=getattr(st, name)).numpy()
    assert b.dtype == name and b.tolist() == np.ones((2, 2), name).tolist()
    assert np.asarray(x.T).shape == (3, 2) and np.shares_memory(np.asarray(x.T), a)
    assert np.array(x).dtype == name and not np.shares_memory(np.array(x), a)


def test_strides_and_shapes():
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = st.from_numpy(a[::2, 1::2])
    assert x.shape == (2, 3) and x.stride() == (12, 2) and x.tolist() == a[::2, 1::2].tolist()
    assert st.from_numpy(np.array(3.0)).shape == () and st.from_numpy(np.zeros((0, 3))).shape == (0, 3)
    assert st.from_numpy(a.T).tolist() == a.T.tolist()
    with pytest.raises(ValueError, match="negative strides"):
        st.from_numpy(a[::-1])
    with pytest.raises(st.DTypeError):
        st.from_numpy(np.zeros(2, np.complex64))
    with pytest.raises(st.DTypeError):
        st.from_numpy(np.array(["a"]))
    readonly = np.ones(2)
    readonly.flags.writeable = False
    with pytest.warns(UserWarning, match="read-only"):
        st.from_numpy(readonly)
    assert st.tensor(a[::-1]).tolist() == a[::-1].tolist()
    assert st.as_tensor(a)._version >= 0 and np.shares_memory(st.as_tensor(a).numpy(), a)
    with pytest.raises(ValueError):
        st.asarray([1, 2], copy=False)


def test_a_tensor_outlives_the_array_it_borrowed():
    class Watched(np.ndarray):
        pass

    a = np.arange(1000, dtype=np.float64).view(Watched)
    gone = weakref.ref(a)
    x = st.from_numpy(a)[10:20]
    del a
    gc.collect()
    assert gone() is not None and x.sum().item() == sum(range(10, 20))
    del x
    gc.collect()
    assert gone() is None


def test_an_array_outlives_its_tensor():
    x = st.arange(1000.0)
    a = np.asarray(x)
    x.data = st.zeros(1)
    del x
    st.zeros(1000)
    assert a[999] == 999
    m = memoryview(st.ones(3))
    assert m.format == "f" and m.shape == (3,) and m.tolist() == [1, 1, 1] and not m.readonly
    assert bytes(memoryview(st.tensor([1, 2], dtype=st.int8))) == b"\x01\x02"


def test_what_cannot_be_a_buffer():
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(st.ones(1, dtype=st.bfloat16))
    with pytest.raises(BufferError, match="detach"):
        memoryview(st.ones(1, requires_grad=True))
    with pytest.raises(st.AutogradError, match="detach"):
        st.ones(1, requires_grad=True).numpy()
    assert st.ones(1, requires_grad=True).numpy(force=True).tolist() == [1]
    with pytest.raises(st.DeviceError):
        st.ones(1, device="meta").numpy()


def test_bfloat16_through_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = st.tensor([1.5, -2.0], dtype=st.bfloat16)
    a = x.numpy()
    assert a.dtype == ml_dtypes.bfloat16 and a.astype(np.float32).tolist() == [1.5, -2]
    y = st.from_numpy(a)
    assert y.dtype is st.bfloat16 and y.equal(x) and y.data_ptr() == x.data_ptr()


def test_arrays_and_operators():
    a, x = np.ones(2, np.float32), st.ones(2)
    for y in (a + x, x + a, np.add(a, x)):
        assert isinstance(y, st.Tensor) and y.dtype == st.float32 and y.tolist() == [2, 2]
    assert (x + np.float32(1)).tolist() == [2, 2] and (np.int64(3) * x).tolist() == [3, 3]


def test_frombuffer():
    b = bytearray(b"\x01\x00\x02\x00")
    x = st.frombuffer(b, dtype=st.int16)
    assert x.tolist() == [1, 2]
    x[0] = 7
    assert b[0] == 7 and st.frombuffer(b, st.int16, count=1, offset=2).tolist() == [2]
    with pytest.raises(BufferError):
        b.append(1)  # lent
    with pytest.raises(ValueError):
        st.frombuffer(b, st.int16, offset=1)
    with pytest.raises(ValueError):
        st.frombuffer(b, st.int16, count=5)


def test_dlpack_with_numpy():
    x = st.arange(6.0).reshape(2, 3)
    a = np.from_dlpack(x.T)
    assert np.shares_memory(a, np.asarray(x)) and a.tolist() == x.T.tolist()
    b = np.arange(4)
    y = st.from_dlpack(b)
    y[0] = 9
    assert b[0] == 9
    assert st.from_dlpack(x)._same_tensor(x) is False and st.from_dlpack(x).data_ptr() == x.data_ptr()
    assert st.from_dlpack(b, copy=True).data_ptr() != b.ctypes.data
    assert x.__dlpack_device__() == (1, 0)
    assert st.from_dlpack(st.ones(2, dtype=st.bfloat16).__dlpack__()).dtype is st.bfloat16
    assert st.from_dlpack(st.tensor([True]).__dlpack__(max_version=(1, 1))).tolist() == [True]


def test_dlpack_with_torch():
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "bfloat16", "int64", "bool"):
        t = torch.ones(2, 3, dtype=getattr(torch, dtype))
        x = st.from_dlpack(t)
        assert x.dtype is getattr(st, dtype) and x.data_ptr() == t.data_ptr()
        back = torch.from_dlpack(x.T)
        assert back.data_ptr() == t.data_ptr() and back.shape == (3, 2)


def test_dlpack_with_jax():
    jnp = pytest.importorskip("jax.numpy")
    a = jnp.arange(6.0).reshape(2, 3)
    x = st.from_dlpack(a)
    assert x.tolist() == a.tolist() and jnp.from_dlpack(st.ones(2)).tolist() == [1, 1]


def test_dlpack_refusals():
    with pytest.raises(BufferError, match="gradient"):
        st.ones(1, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError):
        st.ones(1, device="meta").__dlpack__()
    with pytest.raises(TypeError):
        st.from_dlpack(3)
    with pytest.raises(BufferError):
        st.ones(1).__dlpack__(dl_device=(7, 0))
    with pytest.raises(ValueError):
        st.ones(1).__dlpack__(stream=3)


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_used_and_freed_capsules(version):
    x = st.arange(4.0)
    capsule = x.__dlpack__(max_version=version)
    y = st.from_dlpack(capsule)
    assert y.data_ptr() == x.data_ptr()
    with pytest.raises(ValueError, match="used"):
        st.from_dlpack(capsule)
    del capsule, x
    gc.collect()
    assert y.tolist() == [0, 1, 2, 3]
    never_taken = y.__dlpack__(max_version=version)
    before = sys.getrefcount(y)
    del never_taken
    gc.collect()
    assert sys.getrefcount(y) <= before and y.tolist() == [0, 1, 2, 3]
    empty = ctypes.pythonapi.PyCapsule_New
    empty.restype, empty.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    with pytest.raises(ValueError, match="other"):
        st.from_dlpack(empty(ctypes.addressof(ctypes.c_int(1)), b"other", None))


def test_a_capsule_of_an_unknown_type_is_left_alone():
    class Bits(ctypes.Structure):
        _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]

    x = st.ones(2)
    capsule = x.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(capsule, b"dltensor")
    bits = Bits.from_address(address + 20)  # data, device, ndim, then dtype
    assert (bits.code, bits.bits, bits.lanes) == (2, 32, 1)
    bits.code = 5  # complex
    with pytest.raises(st.DTypeError):
        st.from_dlpack(capsule)
    bits.code = 2
    assert st.from_dlpack(capsule).tolist() == [1, 1]
