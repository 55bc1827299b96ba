"""Models that exist, from Python: tiny ones that scripts/make-models wrote, with what transformers computes."""

import json
import os
import pathlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

import strata as st

MODELS = pathlib.Path(os.environ.get("STRATA_MODELS") or pathlib.Path(os.environ.get("STRATA_SOURCE_DIR", ".")) / "build/models")


def load(name):
    if not (MODELS / name / "reference.safetensors").exists():
        pytest.skip(f"{MODELS / name} is not there: scripts/make-models writes it")
    return st.load_pretrained(MODELS / name), st.load(str(MODELS / name / "reference.safetensors"))


def near(got, want, share=1e-4):
    assert got.shape == want.shape
    assert (got - want).abs().max().item() <= share * want.abs().max().item()


@pytest.mark.parametrize("name", ["llama-plain", "gpt2-plain", "qwen3-plain"])
def test_decoders_give_transformers_logits_and_tokens(name):
    model, reference = load(name)
    assert model.kind == "decoder" and model.family == name.split("-")[0] and not model.training
    with st.no_grad():
        near(model(reference["tokens"]), reference["logits"])
    prompt = [int(i) for i in reference["prompt"].flatten().tolist()]
    want = [int(i) for i in reference["greedy"].flatten().tolist()]
    written = model.generate(prompt, max_new_tokens=len(want))
    assert written[0].tokens == want and written[0].finish == "length"
    # Many at a time, each as if it were alone.
    many = model.generate([prompt, prompt[:3], prompt[2:]], max_new_tokens=8)
    assert many[0][0].tokens == want[:8]
    assert many[1][0].tokens == model.generate(prompt[:3], max_new_tokens=8)[0].tokens


def test_prompts_are_ids_of_any_kind():
    numpy = pytest.importorskip("numpy")
    model, _ = load("llama-plain")
    want = model.generate([1, 2, 3], max_new_tokens=4)[0].tokens
    for ids in ((1, 2, 3), numpy.array([1, 2, 3]), list(numpy.array([1, 2, 3])), st.tensor([1, 2, 3])):
        assert model.generate(ids, max_new_tokens=4)[0].tokens == want
    for rows in (numpy.array([[1, 2, 3], [3, 2, 1]]), st.tensor([[1, 2, 3], [3, 2, 1]]), [st.tensor([1, 2, 3]), (3, 2, 1)]):
        many = model.generate(rows, max_new_tokens=numpy.int64(4))
        assert len(many) == 2 and many[0][0].tokens == want
    for wrong, part in ((b"abc", "bytes"), ([b"abc"], "bytes"), ([1.5], "float|iterable"), (numpy.array([0.5]), "float")):
        with pytest.raises(TypeError, match=part):
            model.generate(wrong, max_new_tokens=2)
    with pytest.raises(ValueError, match="one dimension"):
        model.generate([[1], numpy.array([[1, 2]])], max_new_tokens=2)
    for wrong in (dict(temperature=float("nan")), dict(max_new_tokens=0), dict(top_p=0.0)):
        with pytest.raises(ValueError, match=list(wrong)[0]):
            model.generate([1], **wrong)
    with pytest.raises(TypeError, match="list of texts"):
        model.embed("one text")
    with pytest.raises(TypeError, match="object"):
        model.generate([1], max_new_tokens=2, temperature=object())


def test_text_that_is_none():
    folder = MODELS / "eval/llama-plain"
    if not folder.exists():
        pytest.skip(f"{folder} is not there: scripts/make-models writes it")
    with pytest.raises(ValueError, match="surrogate"):
        st.load_pretrained(folder).encode("a\ud800b")


def test_a_model_that_learned_is_given_back(tmp_path):
    model, reference = load("llama-plain")
    folder = tmp_path / "same"
    model.save_pretrained(folder)
    for name, tensor in st.load_pretrained(folder).state_dict().items():
        assert (tensor == model.state_dict()[name]).all().item(), name
    with pytest.raises((ValueError, st.errors.IoError), match="is there already"):
        model.save_pretrained(folder)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(st.errors.IoError):
        model.save_pretrained(tmp_path / "file" / "deeper")
    assert sorted(os.listdir(tmp_path)) == ["file", "same"], "nothing half-written"
    model.train()
    optimizer = st.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = reference["tokens"][:, :8].contiguous(), reference["tokens"][:, 1:9].contiguous()
    for _ in range(2):
        optimizer.zero_grad()
        model.loss(x, y).backward()
        optimizer.step()
    model.eval()
    model.save_pretrained(tmp_path / "learned")
    again = st.load_pretrained(tmp_path / "learned")
    with st.no_grad():
        assert (again(x) == model(x)).all().item()
    assert again.generate([1, 2, 3], max_new_tokens=5)[0].tokens == model.generate([1, 2, 3], max_new_tokens=5)[0].tokens
    model.save_pretrained(tmp_path / "half", dtype=st.bfloat16)
    assert next(iter(st.load_pretrained(tmp_path / "half").parameters())).dtype == st.bfloat16


def test_options_draw_and_are_checked():
    model, _ = load("llama-plain")
    draw = dict(max_new_tokens=6, do_sample=True, temperature=0.9, num_return_sequences=2)
    one, again = model.generate([1, 2, 3], seed=5, **draw), model.generate([1, 2, 3], seed=5, **draw)
    assert [c.tokens for c in one] == [c.tokens for c in again] and one[0].tokens != one[1].tokens
    assert model.generate([1, 2, 3], seed=6, **draw)[0].tokens != one[0].tokens
    seen = []
    said = model.generate([1, 2, 3], max_new_tokens=4, logprobs=True, top_logprobs=2,
                          callback=lambda request, completion, token, text, last: seen.append(token))
    assert seen == said[0].tokens and len(said[0].logprobs) == 4 and len(said[0].top_logprobs[0]) == 2
    stopped = model.generate([1, 2, 3], max_new_tokens=50, callback=lambda *_: False)
    assert stopped[0].finish == "cancelled" and len(stopped[0].tokens) == 1
    with pytest.raises(RuntimeError, match="enough"):
        model.generate([1], max_new_tokens=3, callback=lambda *_: (_ for _ in ()).throw(RuntimeError("enough")))
    for wrong in (dict(nonsense=1), dict(temperature="hot", do_sample=True), dict(seed="x"), dict(no_repeat_ngram_size=2)):
        with pytest.raises(ValueError, match=list(wrong)[0]):
            model.generate([1], max_new_tokens=2, **wrong)
    with pytest.raises(ValueError, match="no tokenizer"):
        model.generate("text", max_new_tokens=1)
    with pytest.raises(ValueError):
        model.chat([{"role": "user", "content": "hi"}])


def with_tokenizer(name, tmp_path):
    """A copy of a model's folder with a tokenizer of the characters from the blank to 'z'."""
    if not (MODELS / name / "reference.safetensors").exists():
        pytest.skip(f"{MODELS / name} is not there: scripts/make-models writes it")
    folder = tmp_path / name
    shutil.copytree(MODELS / name, folder)
    vocab = {"<s>": 0, "</s>": 1, "<unk>": 2}
    added = [dict(id=i, content=t, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
             for t, i in vocab.items()]
    vocab.update({chr(c): c - 29 for c in range(32, 123)})
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "unk_token": "<unk>", "vocab": vocab, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": "</s>",
        "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"}))
    return folder


def test_text_and_threads(tmp_path):
    model = st.load_pretrained(with_tokenizer("llama-plain", tmp_path))
    assert model.encode("ab<s>") == [68, 69, 0] and model.decode([0, 68, 69]) == "ab"
    assert model.decode([0, 68], skip_special_tokens=False) == "<s>a"
    options = dict(max_new_tokens=20, temperature=1.0, seed=4, prompt_logprobs=True)
    pieces = []
    want = model.generate("Once", callback=lambda r, c, token, text, last: pieces.append(text), **options)[0]
    assert "".join(pieces) == want.text == model.generate_text("Once", **options) and len(want.prompt_logprobs) == 3
    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(lambda _: model.generate_text("Once", **options), range(3))) == {want.text}
    assert isinstance(model.chat([{"role": "user", "content": "<s>"}], max_new_tokens=3), str)
    assert model.chat_prompt([{"role": "user", "content": "<s>"}]).count(0) == 1
    with pytest.raises(ValueError, match="callback"):
        model.generate("a", max_new_tokens=2, callback=lambda *_: model.generate("b", max_new_tokens=1))
    vectors = model.embed(["a", "longer"], normalize=True)
    assert vectors.shape == (2, 64) and ((vectors * vectors).sum() - 2).abs().item() < 1e-4
    with pytest.raises(ValueError, match="weighted_mean"):
        model.embed(["a"], pooling="middle")


def test_it_is_a_module_that_learns():
    model, reference = load("llama-plain")
    assert model.special_ids == {} and model.config["model_type"] == "llama" and "decoder" in model.describe()
    model.train()
    optimizer = st.optim.AdamW(model.parameters(), lr=1e-2)
    x = reference["train"][:, :-1].contiguous()
    y = reference["train"][:, 1:].contiguous()
    near(model.loss(x, y).reshape(1), reference["loss"], 1e-5)
    first = model.loss(x, y).item()
    for _ in range(10):
        optimizer.zero_grad()
        model.loss(x, y).backward()
        optimizer.step()
    assert model.loss(x, y).item() < 0.7 * first
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_encoders_and_pairs():
    bert, reference = load("bert-plain")
    padding = reference["mask"] == 0
    with st.no_grad():
        hidden = bert.hidden(reference["tokens"], padding, reference["types"])
        near(hidden * reference["mask"].unsqueeze(2).to(hidden.dtype), reference["hidden"])
        near(bert.pooled(hidden), reference["pooled"])
        vectors = st.text_embeddings(hidden, padding, pooling="mean", normalize=True)
        assert vectors.shape == (3, 64) and ((vectors * vectors).sum(1) - 1).abs().max().item() < 1e-5
    with pytest.raises(ValueError, match="weighted_mean"):
        st.text_embeddings(hidden, padding, pooling="middle")
    with pytest.raises(ValueError, match="no model that writes"):
        bert.generate([1], max_new_tokens=1)
    vit, reference = load("vit-labels")
    with st.no_grad():
        near(vit(reference["pixels"]), reference["logits"])
    clip, reference = load("clip-plain")
    with st.no_grad():
        text = clip.text_vectors(reference["tokens"], reference["mask"] == 0)
        near(clip.scores(text, clip.image_vectors(reference["pixels"])), reference["scores"])


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(IOError):
        st.load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(ValueError, match="unheard-of"):
        st.load_pretrained(tmp_path)


# ---- evaluation ----


def cases(name):
    folder = MODELS / "eval" / name
    if not (folder / "expected.json").exists():
        pytest.skip(f"{folder} is not there: scripts/make-models writes it")
    return folder, json.loads((folder / "expected.json").read_text())


def measured_cases():
    root = MODELS / "eval"
    return sorted(p.parent.name for p in root.glob("*/expected.json")) or ["llama"]


@pytest.mark.parametrize("name", measured_cases())
def test_evaluations_are_those_of_transformers(name):
    folder, expected = cases(name)
    model = st.load_pretrained(folder)
    root = folder.parent
    heard = []
    report = st.evaluate(model, text=root / "texts.jsonl", choices=[root / "choices.jsonl"], answers=str(folder / "answers.jsonl"),
                         max_gen_toks=12, until=["\n\n", "."], log_samples=True, callback=lambda *told: heard.append(told))
    assert list(report["results"]) == ["text", "choices", "answers"]
    assert {told[0] for told in heard} == set(report["results"]) and all(told[2] <= told[3] for told in heard)
    drawn = st.evaluate(model, choices=root / "choices.jsonl", num_fewshot=3, fewshot_seed=1234, log_samples=True)
    for kind, result in [*report["results"].items(), ("choices-drawn", drawn["results"]["choices"])]:
        want = expected[kind]
        for measure, value in want["measures"].items():
            got = result["measures"][measure.removesuffix("_stderr")]["error" if measure.endswith("_stderr") else "value"]
            assert got == pytest.approx(value, rel=2e-4 if measure.endswith("perplexity") else 1e-5), (kind, measure)
        assert len(result["samples"]) == len(want["samples"])
        for sample, right in zip(result["samples"], want["samples"]):
            if kind == "answers":
                assert sample["written"] == right
            else:
                assert sample["log_probabilities"] == pytest.approx(right if isinstance(right, list) else [right], rel=1e-5)


@pytest.mark.skipif(not os.environ.get("STRATA_COMMAND"), reason="STRATA_COMMAND names no strata command")
def test_evaluations_equal_the_command(tmp_path):
    folder, _ = cases(measured_cases()[0])
    root = folder.parent
    subprocess.run([os.environ["STRATA_COMMAND"], "eval", "--quiet", "--samples", "--shots", "2", "--model", folder,
                    "--text", root / "texts.jsonl", "--choices", root / "choices.jsonl", "--json", tmp_path / "out.json"],
                   check=True, capture_output=True)
    written = json.loads((tmp_path / "out.json").read_text())
    called = st.evaluate(st.load_pretrained(folder), text=root / "texts.jsonl", choices=root / "choices.jsonl", num_fewshot=2,
                         log_samples=True)
    assert written.pop("version") and called["model"] == str(folder)
    for result in [*written["results"].values(), *called["results"].values()]:
        del result["seconds"]
    assert called == written


def test_evaluations_compare_and_are_refused():
    folder, _ = cases(measured_cases()[0])
    model, other = st.load_pretrained(folder), st.load_pretrained(folder)
    model.train()
    compared = st.evaluate(model, documents=["some text to read"], reference=other)["results"]["compare"]["measures"]
    assert compared["kl"]["value"] == 0 and compared["same_top"]["value"] == 1 and model.training
    with pytest.raises(TypeError, match="load_pretrained"):
        st.evaluate(model, documents="a", reference=3)
    with pytest.raises(ValueError, match="there is no such option"):
        st.evaluate(model, documents="a", shots=3)
    with pytest.raises(ValueError, match="nothing to evaluate on"):
        st.evaluate(model)
    with pytest.raises(OSError, match="no.txt"):
        st.evaluate(model, text="no.txt")
    with pytest.raises(TypeError, match="object"):
        st.evaluate(model, documents=object())
    with pytest.raises(ValueError, match="stopped"):
        st.evaluate(model, documents=["a b", "c"], batch_size=1, callback=lambda *_: False)
    with pytest.raises(ZeroDivisionError):
        st.evaluate(model, documents=["a b", "c"], callback=lambda *_: 1 // 0)
    # Every option has a name and a meaning.
    options = json.loads(st._core.describe_evaluation_options())
    assert {"text", "choices", "num_fewshot", "limit"} <= {o["name"] for o in options} and all(o["doc"] for o in options)
