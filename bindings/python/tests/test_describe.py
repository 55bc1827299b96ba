"""What the package offers is what the records say of themselves."""

import json

import pytest

import strata as st

RECORDS = json.loads(st._core.describe_ops())["ops"]
PUBLIC = [op for op in RECORDS if not op["internal"]]
INTERNAL = [op["name"] for op in RECORDS if op["internal"]]


def test_every_record_is_offered_under_all_of_its_names():
    assert len(RECORDS) > 500
    for op in PUBLIC:
        assert hasattr(st.ops, op["name"]), op["name"]
        for name in (op["name"], *op["aliases"]):
            assert callable(getattr(st, name)), name
            if op["args"] and op["args"][0]["type"] == "Tensor":
                assert hasattr(st.Tensor, name), name
                assert not op["inplace"] or hasattr(st.Tensor, name + "_"), name + "_"


def test_internal_records_stand_in_one_place():
    assert len([name for name in INTERNAL if name.endswith("_backward")]) >= 37
    for name in INTERNAL:
        assert callable(getattr(st.ops.internal, name))
        for place in (st, st.Tensor, st.ops):
            assert not hasattr(place, name), name
    offered = {op["name"] for op in PUBLIC}
    assert {name for name in st.ops.__all__ if not name.endswith("_")} == offered


def test_results_that_only_gradient_rules_read():
    x, w = st.randn(2, 4), st.ones(4)
    assert isinstance(st.layer_norm(x, [4]), st.Tensor) and isinstance(x.layer_norm([4]), st.Tensor)
    whole = st.ops.layer_norm(x, [4])
    assert whole._fields == ("y", "mean", "rstd") and whole.y.equal(st.layer_norm(x, (4,)))
    y, total = st.add_rms_norm(x, x, w)
    assert total.equal(x + x) and len(st.ops.add_rms_norm(x, x, w)) == 3


def test_other_names():
    x = st.tensor([-1.5, 2.0])
    assert st.absolute(x).equal(x.absolute()) and x.clone().absolute_().equal(abs(x))
    assert st.absolute.__name__ == "absolute" and st.greater(x, 0).tolist() == [False, True]
    y = x.clone()
    assert y.greater_(0) is y and y.tolist() == [0.0, 1.0] and y.dtype == st.float32
    assert st.swapaxes(st.zeros(2, 3), axis0=0, axis1=1).shape == (3, 2) == st.moveaxis(st.zeros(2, 3), 0, 1).shape


def test_in_place_by_copying_has_the_plain_forms_gradient():
    a = st.tensor([1.0, 2.0], requires_grad=True)
    b = st.tensor([1.0, 2.0], requires_grad=True)
    (a * 2).float_power_(3.0).sum().backward()
    (b * 2).float_power(3.0).to(st.float32).sum().backward()
    assert a.grad.tolist() == pytest.approx(b.grad.tolist())


def test_keys_are_drawn_as_the_record_says():
    x = st.full([2, 9], 0.5)
    for op, args, blocks in (("dropout", (x, 0.5), 5), ("multinomial", (x, 3, True), 6), ("multinomial", (x, 3), 18),
                             ("poisson", (x,), 5), ("randint", (0, 5, [9]), 5), ("uniform", ([3, 7], 0.0, 1.0), 6)):
        st.manual_seed(3)
        getattr(st.ops, op)(*args)
        assert st._core._rng_key() == (3, blocks), op
    st.manual_seed(5)
    first = st.bernoulli(x)
    assert first.equal(st.ops.bernoulli(x, key=(5, 0)))
