"""Shapes as Size, and the state of generators as tensors."""

import copy
import pickle

import pytest

import strata as st


def test_a_shape_is_a_tuple_that_knows_its_product():
    shape = st.zeros(2, 3, 4).shape
    assert isinstance(shape, st.Size) and isinstance(shape, tuple) and shape == (2, 3, 4) and hash(shape) == hash((2, 3, 4))
    assert shape.numel() == 24 and st.zeros([]).shape.numel() == 1 and st.zeros(0, 5).shape.numel() == 0
    assert repr(shape) == "strata.Size([2, 3, 4])" and repr(st.tensor(1).shape) == "strata.Size([])"
    assert isinstance(st.zeros(2).size(), st.Size) and not isinstance((2, 3), st.Size)
    assert type(st.zeros(2, 3).stride()) is tuple


def test_what_is_made_of_a_size_is_one():
    shape = st.zeros(2, 3, 4).shape
    for made, want in ((shape[1:], (3, 4)), (shape + (5,), (2, 3, 4, 5)), ((5,) + shape, (5, 2, 3, 4)),
                       (shape * 2, (2, 3, 4) * 2), (2 * shape, (2, 3, 4) * 2), (copy.deepcopy(shape), shape),
                       (pickle.loads(pickle.dumps(shape)), shape), (st.Size(iter([1, st.tensor(7)])), (1, 7)),
                       (st.broadcast_shapes((2, 1), (3,)), (2, 3))):
        assert type(made) is st.Size and made == want
    assert shape[0] == 2 and shape[-1] == 4 and list(shape) == [2, 3, 4] and shape.index(3) == 1
    assert st.Size([2] * 70).numel() == 2**70
    with pytest.raises(TypeError, match="item 1 is <class 'float'>"):
        st.Size([1, 2.5])
    with pytest.raises(TypeError):
        shape + [1]


def test_shapes_that_share_a_place_in_the_cache_stay_apart():
    shapes = {(a, b): st.empty(a, b, device="meta").shape for a in range(40) for b in range(40)}
    assert all(tuple(shape) == key for key, shape in shapes.items())
    again = [st.empty(a, b, device="meta").shape for a in range(40) for b in range(40)]
    assert again == list(shapes)


@pytest.mark.parametrize("cuda", [False, True])
def test_the_state_of_the_generator_is_a_tensor(cuda):
    lib = st.cuda if cuda else st
    st.manual_seed(7)
    st.rand(3)
    state = lib.get_rng_state()
    assert state.dtype == st.uint8 and state.dim() == 1 and state.device.type == "cpu"
    first = st.rand(5)
    assert not st.equal(first, st.rand(5))
    lib.set_rng_state(state)
    assert st.equal(first, st.rand(5)) and lib.initial_seed() == 7
    assert not st.equal(state, lib.get_rng_state())


def test_a_state_travels_through_files_and_generators(tmp_path):
    g = st.Generator().manual_seed(2**63 + 5)
    st.rand(2, generator=g)
    st.save({"rng": g.get_state()}, tmp_path / "state.safetensors")
    want = st.rand(4, generator=g)
    other = st.Generator().set_state(st.load(tmp_path / "state.safetensors")["rng"])
    assert st.equal(want, st.rand(4, generator=other)) and other.initial_seed() == 2**63 + 5
    assert st.equal(g.get_state(), g.clone_state().get_state())
    st.set_rng_state(st.Generator().manual_seed(3).get_state())
    assert st.initial_seed() == 3 and st.equal(st.default_generator.get_state(), st.get_rng_state())


def test_what_is_no_state_is_refused():
    with pytest.raises(TypeError, match="uint8 tensor, got tuple"):
        st.set_rng_state((1, 2))
    with pytest.raises(TypeError, match="uint8 tensor, got strata.float32"):
        st.set_rng_state(st.zeros(16))
    with pytest.raises(ValueError, match="16 elements, got 3"):
        st.Generator().set_state(st.zeros(3, dtype=st.uint8))
    with pytest.raises(ValueError):
        st.cuda.get_rng_state("cpu")


def test_states_of_all_cards():
    states = st.cuda.get_rng_state_all()
    assert len(states) == st.cuda.device_count()
    before = st.get_rng_state()
    st.cuda.set_rng_state_all(states)
    assert st.equal(before, st.get_rng_state())
    st.cuda.seed_all()
    assert not st.equal(before, st.get_rng_state())
