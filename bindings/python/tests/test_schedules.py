"""Schedules of learning rates: their formulas, and that they go on where they were saved."""

import json
import math

import numpy as np
import pytest

import strata as st
from strata import nn, optim
from strata.optim import lr_scheduler


def rates(make, n, lr=0.8):
    opt = optim.SGD([nn.Parameter(st.ones(1))], lr=lr)
    scheduler = make(opt)
    found = []
    for _ in range(n):
        found.append(opt.param_groups[0]["lr"])
        opt.step()
        scheduler.step()
    return found


def test_schedules():
    ok = lambda got, wanted: np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-15)
    n = range(12)
    ok(rates(lambda o: lr_scheduler.StepLR(o, 3, 0.5), 12), [0.8 * 0.5 ** (i // 3) for i in n])
    ok(rates(lambda o: lr_scheduler.MultiStepLR(o, [2, 5, 5]), 12), [0.8 * 0.1 ** ((i >= 2) + 2 * (i >= 5)) for i in n])
    ok(rates(lambda o: lr_scheduler.ExponentialLR(o, 0.9), 12), [0.8 * 0.9**i for i in n])
    ok(rates(lambda o: lr_scheduler.CosineAnnealingLR(o, 10, 0.1), 11),
       [0.1 + 0.7 * (1 + math.cos(math.pi * i / 10)) / 2 for i in range(11)])
    warm = rates(lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2, 2), 12)
    ok(warm, [0.8 * (1 + math.cos(math.pi * a / b)) / 2 for a, b in
              [(0, 2), (1, 2), (0, 4), (1, 4), (2, 4), (3, 4), (0, 8), (1, 8), (2, 8), (3, 8), (4, 8), (5, 8)]])
    ok(rates(lambda o: lr_scheduler.LinearLR(o, 0.25, 1.0, 3), 5), [0.2, 0.4, 0.6, 0.8, 0.8])
    ok(rates(lambda o: lr_scheduler.ConstantLR(o, 0.5, 2), 4), [0.4, 0.4, 0.8, 0.8])
    ok(rates(lambda o: lr_scheduler.PolynomialLR(o, 4, 2.0), 6), [0.8 * (1 - min(i, 4) / 4) ** 2 for i in range(6)])
    ok(rates(lambda o: lr_scheduler.LambdaLR(o, lambda i: 1 / (i + 1)), 4), [0.8 / (i + 1) for i in range(4)])
    ok(rates(lambda o: lr_scheduler.MultiplicativeLR(o, lambda i: 0.5), 4), [0.8 * 0.5**i for i in range(4)])


def test_every_schedule_of_the_engine_by_its_name():
    records = {r["name"]: r for r in json.loads(st._core._schedule_records())}
    assert {"constant", "cosine", "linear", "one_cycle", "wsd", "StepLR"} <= set(records)
    wsd = lambda o: lr_scheduler.ScheduleLR(o, "wsd", total=20, warmup=4, decay=8, min_ratio=0.5)
    np.testing.assert_allclose(
        rates(wsd, 21), [*(0.8 * (i + 1) / 4 for i in range(4)), *[0.8] * 8, *(0.8 - 0.4 * i / 8 for i in range(9))], rtol=1e-12)
    assert rates(lambda o: lr_scheduler.ScheduleLR(o, "StepLR", step_size=2), 6) == rates(lambda o: lr_scheduler.StepLR(o, 2), 6)
    half = rates(lambda o: lr_scheduler.ScheduleLR(o, "cosine", total=10), 11)
    assert half[0] == 0.8 and abs(half[5] - 0.4) < 1e-12 and abs(half[10]) < 1e-12
    opt = optim.SGD([nn.Parameter(st.ones(1))], lr=0.8)
    for wrong in ({"schedule": "wsd"}, {"schedule": "linear", "total": 3, "warmup": 4}, {"schedule": "linear", "steps": 3},
                  {"schedule": "square"}):
        with pytest.raises(ValueError):
            lr_scheduler.ScheduleLR(opt, **wrong)
    s = wsd(opt)
    for _ in range(7):
        s.step()
    other = wsd(optim.SGD([nn.Parameter(st.ones(1))], lr=0.8))
    other.load_state_dict(s.state_dict())
    s.step(), other.step()
    assert other.get_last_lr() == s.get_last_lr()


def test_one_cycle():
    got = rates(lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=10, pct_start=0.3), 10)
    between = lambda a, b, p: b + (a - b) / 2 * (1 + math.cos(math.pi * p))
    wanted = [between(0.04, 1, i / 2) if i <= 2 else between(1, 4e-6, (i - 2) / 7) for i in range(10)]
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    three = rates(lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=10, three_phase=True, anneal_strategy="linear"), 10)
    assert three[2] == pytest.approx(1.0) and three[4] == pytest.approx(0.04) and three[9] == pytest.approx(4e-6)
    opt = optim.Adam([nn.Parameter(st.ones(1))])
    s = lr_scheduler.OneCycleLR(opt, 1.0, total_steps=4, cycle_momentum=True)
    assert opt.param_groups[0]["betas"][0] == pytest.approx(0.95)
    for _ in range(4):
        s.step()
    with pytest.raises(ValueError, match="Tried to step"):
        s.step()


def test_sequential_and_plateau():
    make = lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.5, 1.0, 2), lr_scheduler.ExponentialLR(o, 0.9)], [2])
    np.testing.assert_allclose(rates(make, 5), [0.4, 0.6, 0.8, 0.72, 0.648], rtol=1e-12)
    opt = optim.SGD([nn.Parameter(st.ones(1))], lr=1.0)
    s = lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
    for value, lr in [(1.0, 1.0), (0.9, 1.0), (0.9, 1.0), (0.9, 0.5), (0.8, 0.5), (0.8, 0.5), (0.8, 0.25)]:
        s.step(value)
        assert opt.param_groups[0]["lr"] == lr
    best = lr_scheduler.ReduceLROnPlateau(opt, mode="max", patience=0, threshold_mode="abs")
    best.step(st.tensor(1.0))
    best.step(2.0)
    assert best.num_bad_epochs == 0
    with pytest.raises(TypeError):
        best.step()


def test_cycles():
    triangle = [0, 0.5, 1, 2 / 3, 1 / 3, 0, 0.5, 1, 2 / 3, 1 / 3]
    got = rates(lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.9, 2, 3, cycle_momentum=False), 10)
    np.testing.assert_allclose(got, [0.1 + 0.8 * x for x in triangle], rtol=1e-12)
    got = rates(lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.9, 2, 3, mode="triangular2"), 10)
    np.testing.assert_allclose(got, [0.1 + 0.8 * x * (1 if i < 5 else 0.5) for i, x in enumerate(triangle)], rtol=1e-12)
    got = rates(lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.9, 2, 3, mode="exp_range", gamma=0.9), 10)
    np.testing.assert_allclose(got, [0.1 + 0.8 * x * 0.9**i for i, x in enumerate(triangle)], rtol=1e-12)
    opt = optim.SGD([nn.Parameter(st.ones(1))], lr=1.0, momentum=0.9)
    s = lr_scheduler.CyclicLR(opt, 0.1, 0.9, 2, scale_fn=lambda x: 1 / x)
    assert opt.param_groups[0]["momentum"] == 0.9
    s.step()
    s.step()
    assert opt.param_groups[0]["momentum"] == pytest.approx(0.8) and opt.param_groups[0]["lr"] == pytest.approx(0.9)
    with pytest.raises(ValueError, match="momentum"):
        lr_scheduler.CyclicLR(optim.Adagrad([nn.Parameter(st.ones(1))]), 0.1, 0.9)
    with pytest.raises(ValueError, match="momentum"):
        lr_scheduler.OneCycleLR(optim.Adadelta([nn.Parameter(st.ones(1))]), 1.0, total_steps=3)


def test_chained():
    make = lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, 3), lr_scheduler.ExponentialLR(o, 0.9), lr_scheduler.LinearLR(o, 0.5, 1.0, 2),
         lr_scheduler.PolynomialLR(o, 8), lr_scheduler.CosineAnnealingLR(o, 9)])
    wanted = [0.8 * (0.1 if i < 3 else 1) * 0.9**i * min(0.5 + i / 4, 1) * (1 - i / 8) * (1 + math.cos(math.pi * i / 9)) / 2
              for i in range(8)]
    np.testing.assert_allclose(rates(make, 8), wanted, rtol=1e-12)
    opt = optim.SGD([nn.Parameter(st.ones(1))], lr=0.8)
    s = make(opt)
    for _ in range(3):
        s.step()
    other_opt = optim.SGD([nn.Parameter(st.ones(1))], lr=0.8)
    other = make(other_opt)
    other.load_state_dict(s.state_dict())
    other_opt.load_state_dict(opt.state_dict())
    s.step()
    other.step()
    assert s.get_last_lr() == other.get_last_lr() == [pytest.approx(wanted[4])]
    with pytest.raises(ValueError, match="belong to one"):
        lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(opt, 2), lr_scheduler.StepLR(other_opt, 2)])
    with pytest.raises(ValueError, match="at least one"):
        lr_scheduler.ChainedScheduler([])


def test_schedules_go_on():
    def make():
        opt = optim.SGD([nn.Parameter(st.ones(1))], lr=0.8)
        return opt, lr_scheduler.CosineAnnealingLR(opt, 10)

    opt, s = make()
    for _ in range(4):
        s.step()
    other_opt, other = make()
    other.load_state_dict(s.state_dict())
    other_opt.load_state_dict(opt.state_dict())
    s.step()
    other.step()
    assert s.get_last_lr() == other.get_last_lr()
