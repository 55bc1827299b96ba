"""st.plan(): what the command says."""

import json
import os
import subprocess

import pytest

import strata as st

SETTINGS = {
    "model.layers": 2, "model.dim": 32, "model.heads": 4, "model.context": 16, "model.vocab": 256, "model.dropout": 0.1,
    "train.batch": 8,
}


@pytest.fixture
def links(tmp_path):
    path = tmp_path / "links.json"
    one = {"gb_s": 0.5, "latency_us": 50}
    pairs = [[0.02 if {i // 4, i % 4} == {0, 1} else 0.5, 50] for i in range(16)]
    path.write_text(json.dumps({
        "name": "made up", "limits": {"gb_s": 10, "gflops": 50, "matmul_f32": 100, "matmul_bf16": 100}, "efficiency": 0.5,
        "call_us": 5, "share": 1, "memory": 1 << 30,
        "links": {"transport": "gloo", "ranks_per_host": 4, "inside": one, "between": one, "overlap": 0.5, "scale": 1,
                  "small_scale": 1, "pairs": pairs},
    }))
    return path


def test_records_are_the_commands(links, tmp_path):
    command = os.environ.get("STRATA_COMMAND")
    if not command:
        pytest.skip("STRATA_COMMAND names no command")
    plan = st.plan(SETTINGS, 4, links=links, order=True, rows=3)
    settings = [f"{k}={v}" for k, v in SETTINGS.items()]
    run = [command, "plan", "--ranks", "4", "--links", str(links), "--order", "--rows", "3", "--set", *settings]
    told = json.loads(subprocess.run([*run, "--json"], capture_output=True, text=True, check=True).stdout)
    assert len(plan.layouts) == len(told["layouts"]) > 10
    for mine, its in zip(plan.layouts, told["layouts"]):
        assert {**vars(mine), "settings": list(mine.settings)} == its
    assert [vars(r) for r in plan.left_out] == told["left_out"]
    assert {**vars(plan.order), "ranks": list(plan.order.ranks)} == told["order"]
    assert (plan.ranks, plan.memory, plan.tokens) == (told["ranks"], told["memory"], told["tokens"])
    # The command line goes on with itself: what trains the first layout, by a launch.
    text, train = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split("\nto train so:\n")
    assert str(plan) == text
    launch, chosen = train.split(" -- strata train --set ")
    assert launch.split()[:4] == ["strata", "launch", "-n", "4"]
    assert chosen.split() == [*settings, *plan.layouts[0].settings]


def test_the_first_can_be_set(links):
    plan = st.plan(st.TrainConfig(overrides=[f"{k}={v}" for k, v in SETTINGS.items()]), 4, links=str(links))
    times = [p.seconds for p in plan.layouts]
    assert times == sorted(times) and plan.order is None
    config = st.TrainConfig(overrides=[*(f"{k}={v}" for k, v in SETTINGS.items()), *plan.layouts[0].settings])
    parallel = [config["parallel." + axis] for axis in ("dp", "tp", "cp", "pp")]
    assert parallel[0] * parallel[1] * parallel[2] * parallel[3] == 4
    small = st.plan(SETTINGS, 4, links=links, memory=1000)
    assert not small.layouts and any("memory" in r.reason and r.least > 1000 for r in small.left_out)


def test_a_program_goes_on_as_if_it_had_not_planned(links):
    st.manual_seed(3)
    want = st.rand(4).tolist()
    st.manual_seed(3)
    st.plan(SETTINGS, 2, card="h200")
    assert st.rand(4).tolist() == want


def test_what_cannot_be_planned_is_named(links, tmp_path):
    with pytest.raises(ValueError, match="what goes between ranks is not known"):
        st.plan(SETTINGS, 4)
    with pytest.raises(ValueError, match="3 hosts do not divide the 4 ranks"):
        st.plan(SETTINGS, 4, links=links, hosts=3)
    with pytest.raises(ValueError, match="ranks are 0"):
        st.plan(SETTINGS, 0, card="h200")
    with pytest.raises(ValueError, match="rows are 0"):
        st.plan(SETTINGS, 4, card="h200", rows=0)
    with pytest.raises(ValueError, match="memory"):
        st.plan(SETTINGS, 4, card="h200", memory="much")
    with pytest.raises(ValueError, match="h200"):
        st.plan(SETTINGS, 4, card="h000")
    with pytest.raises(st.errors.IoError, match="none.json"):
        st.plan(SETTINGS, 4, links=tmp_path / "none.json")
    links.write_text('{"name": ')
    with pytest.raises(st.errors.IoError, match="is no JSON at byte"):
        st.plan(SETTINGS, 4, links=links)
