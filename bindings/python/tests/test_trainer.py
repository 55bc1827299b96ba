"""Trainer, ModuleTrainer and the engine's language models."""

import copy
import json
import os
import pathlib
import pickle
import signal
import subprocess

import numpy as np
import pytest

import strata as st
from strata import nn

TEXT = "the quick brown fox jumps over the lazy dog and the cat sat on the mat\n" * 40
SETTINGS = {
    "model.layers": 2, "model.dim": 32, "model.heads": 4, "model.context": 16, "model.dropout": 0.1, "train.steps": 8,
    "train.batch": 4, "train.warmup": 2, "train.eval_every": 4, "train.save_every": 4, "train.sample_tokens": 16,
    "data.valid_fraction": 0.2, "train.keep_last": 4,
}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def weights(folder):
    newest = sorted(p for p in os.listdir(folder) if p.startswith("step-"))[-1]
    return st.load(pathlib.Path(folder) / newest / "model.safetensors")


def strata_command():
    found = os.environ.get("STRATA_COMMAND")
    if found:
        return found
    root = pathlib.Path(__file__).resolve().parents[3]
    built = sorted(root.glob("build/*/bin/strata"), key=lambda p: p.stat().st_mtime)
    return str(built[-1]) if built else None


def test_trainer_equals_the_command(text, tmp_path, capfd):
    result = st.Trainer({**SETTINGS, "data.path": text}, out=tmp_path / "a").train()
    assert result.step == 8 and result.status == "finished" and result.last["loss"] < 6
    assert os.path.exists(result.report) and len(result.metrics()) == 8
    assert "step 8/8" in capfd.readouterr().err
    command = strata_command()
    if command is None:
        pytest.skip("the command line is not built (STRATA_COMMAND names it)")
    sets = [f"{k}={json.dumps(v)}" for k, v in SETTINGS.items()]
    subprocess.run([command, "train", "--quiet", "--data", text, "--out", tmp_path / "b", "--set", *sets], check=True,
                   stdout=subprocess.DEVNULL)
    a, b = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert set(a) == set(b) and len(a) > 10
    for name in a:
        np.testing.assert_array_equal(a[name].numpy(), b[name].numpy())
    exact = ("step", "loss", "lr", "grad_norm", "tokens", "valid_loss")
    keep = lambda steps: [{k: s[k] for k in exact if k in s} for s in steps]
    assert keep(result.metrics()) == keep(st._core.read_metrics(str(tmp_path / "b" / "metrics.jsonl")))


def test_trainer_stops_and_resumes(text, tmp_path):
    settings = {**SETTINGS, "data.path": text}
    whole = st.Trainer(settings, out=tmp_path / "whole").train(progress=False)
    asked = []

    def stop():
        asked.append(1)
        return len(asked) == 3

    part = st.Trainer(settings, out=tmp_path / "part")
    first = part.train(progress=False, should_stop=stop)
    assert first.step == 3 and first.status == "stopped at step 3: interrupted"
    with pytest.raises(ValueError, match="holds a run already"):
        part.train(progress=False)
    last = part.train(resume=True, progress=False)
    assert last.last["loss"] == whole.last["loss"]
    for name, w in weights(tmp_path / "whole").items():
        np.testing.assert_array_equal(w.numpy(), weights(tmp_path / "part")[name].numpy())


def test_what_should_stop_raises_comes_out_after_saving(text, tmp_path):
    class Enough(Exception):
        pass

    def stop():
        raise Enough("now")

    trainer = st.Trainer({**SETTINGS, "data.path": text}, out=tmp_path / "run")
    with pytest.raises(Enough, match="now"):
        trainer.train(progress=False, should_stop=stop)
    assert trainer.train(resume=True, progress=False).step == 8


def test_ctrl_c_saves(text, tmp_path):
    asked = []

    def stop():
        asked.append(1)
        if len(asked) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return False

    trainer = st.Trainer({**SETTINGS, "data.path": text}, out=tmp_path / "run")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background starts without
    try:
        with pytest.raises(KeyboardInterrupt):
            trainer.train(progress=False, should_stop=stop)
    finally:
        signal.signal(signal.SIGINT, before)
    assert 3 <= max(int(n[5:]) for n in os.listdir(tmp_path / "run") if n.startswith("step-")) < 8
    assert trainer.train(resume=True, progress=False).step == 8


def test_bad_settings(tmp_path):
    with pytest.raises(ValueError, match="no setting 'model.layer'"):
        st.Trainer({"model.layer": 3}, out=tmp_path)
    with pytest.raises(TypeError, match="model.layers is an int"):
        st.Trainer({"model.layers": "many"}, out=tmp_path)
    with pytest.raises(ValueError):
        st.Trainer({"model.heads": 7, "model.dim": 32}, out=tmp_path)
    with pytest.raises(OSError):
        st.Trainer({"data.path": str(tmp_path / "none.txt")}, out=tmp_path / "x").train(progress=False)
    config = st.TrainConfig()
    config["train.lr"] = 3
    assert config["train.lr"] == 3.0 and "model.layers" in config.keys() and st.TrainConfig(config.to_toml()) == config
    assert "train.lr" in st.TrainConfig.help()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text(TEXT)
    return st.Trainer({**SETTINGS, "data.path": folder / "text.txt"}, out=folder / "out"), folder


def test_language_model(run):
    trainer, folder = run
    trainer.train(progress=False)
    model = trainer.model()
    assert not model.training and model.context == 16 and model.vocab_size == 256 and model.step == 8
    tokens = st.tensor([model.tokenizer.encode("the quick brown")])
    logits = model(tokens)
    assert logits.shape == (1, 15, 256)
    saved = weights(trainer.out)
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(p.detach().numpy(), saved[name].numpy())
    a = model.generate_text("the ", 12, seed=3)
    assert a == model.generate_text("the ", 12, seed=3) and len(a) >= 1
    greedy = model.generate(tokens.tolist()[0], 1, temperature=0)
    assert greedy == [int(logits[0, -1].argmax().item())]
    ids = model.generate(tokens.tolist()[0], 5, seed=1)
    stream = model.stream(tokens.tolist()[0], seed=1)
    assert [next(stream) for _ in range(5)] == ids
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other(tokens).detach().numpy(), logits.detach().numpy())
        assert other.generate_text("the ", 12, seed=3) == a


def test_language_model_trains_from_python():
    st.manual_seed(1)
    model = st.LanguageModel({"model.layers": 1, "model.dim": 32, "model.heads": 2, "model.context": 16, "model.vocab": 256,
                              "model.family": "llama"})
    opt = st.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = st.tensor([list(TEXT.encode()[i : i + 17]) for i in range(0, 340, 17)])
    losses = []
    for _ in range(30):
        opt.zero_grad()
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 0.7
    full = nn.functional.cross_entropy(model(tokens[:, :-1]).reshape(-1, 256), tokens[:, 1:].reshape(-1))
    assert full.item() == pytest.approx(model.loss(tokens[:, :-1], tokens[:, 1:]).item(), rel=1e-5)
    with pytest.raises(ValueError, match="no tokenizer"):
        model.generate_text("a")
    with pytest.raises(IndexError):
        model(st.tensor([[256]]))


# ---- ModuleTrainer


def parts(seed=0, n=48):
    st.manual_seed(seed)
    x = st.randn(n, 4)
    y = (x.sum([1]) > 0).to(st.int64)
    data = st.utils.data.TensorDataset(x, y)
    st.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
    opt = st.optim.AdamW(net.parameters(), lr=0.02)
    loader = st.utils.data.DataLoader(data, batch_size=10, shuffle=True, seed=4)
    return net, opt, loader, data


def trainer_of(out, **options):
    net, opt, loader, data = parts()
    schedule = st.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
    valid = st.utils.data.DataLoader(data, batch_size=48)
    return st.ModuleTrainer(net, nn.CrossEntropyLoss(), opt, loader, out=out, epochs=4, valid_loader=valid,
                            scheduler=schedule, max_norm=1.0, **options)


def test_module_trainer(tmp_path, capfd):
    trainer = trainer_of(tmp_path / "run")
    result = trainer.train()
    steps = result.metrics()
    assert result.step == 20 and len(steps) == 20 and steps[-1]["valid_loss"] < steps[4]["valid_loss"]
    assert steps[-1]["tokens"] == 4 * 48 and "samples/s" in capfd.readouterr().err
    page = pathlib.Path(result.report).read_text()
    assert "(0): Linear(in_features=4, out_features=16, bias=True)" in page and "CosineAnnealingLR" in page
    assert "finished" in page and "Samples" in page
    assert len([n for n in os.listdir(tmp_path / "run") if n.endswith(".safetensors")]) == 2
    with pytest.raises(ValueError, match="already"):
        trainer_of(tmp_path / "run").train()


def test_module_trainer_resumes_to_the_same_weights(tmp_path):
    whole = trainer_of(tmp_path / "whole")
    whole.train(progress=False)
    part = trainer_of(tmp_path / "part", save_every=1)
    calls = []

    def interrupt(*_):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt

    handle = part.module.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        part.train(progress=False)
    handle.remove()
    assert "stopped at step" in (tmp_path / "part" / "report.html").read_text()
    again = trainer_of(tmp_path / "part")
    result = again.train(resume=True, progress=False)
    assert result.step == 20
    for a, b in zip(whole.module.parameters(), again.module.parameters()):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    a, b = (st._core.read_metrics(str(tmp_path / f / "metrics.jsonl")) for f in ("whole", "part"))
    assert [s["loss"] for s in a] == [s["loss"] for s in b]


def test_module_trainer_notices_divergence(tmp_path):
    net, opt, loader, _ = parts()
    before = [p.detach().clone() for p in net.parameters()]
    trainer = st.ModuleTrainer(net, lambda y, t: y.sum() * float("nan"), opt, loader, out=tmp_path / "run")
    with pytest.raises(st.DivergedError, match="step 1"):
        trainer.train(progress=False)
    for p, b in zip(net.parameters(), before):
        np.testing.assert_array_equal(p.detach().numpy(), b.numpy())
    net, opt, loader, _ = parts()
    custom = st.ModuleTrainer(net, None, opt, loader, out=tmp_path / "own", steps=3, save_every=-1,
                              compute_loss=lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1]))
    assert custom.train(progress=False).checkpoint == ""
    with pytest.raises(ValueError, match="either"):
        st.ModuleTrainer(net, None, opt, loader, out=tmp_path / "z")
