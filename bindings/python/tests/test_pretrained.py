"""Models that exist, from Python: tiny ones that scripts/make-models wrote, with what transformers computes."""

import json
import os
import pathlib
import shutil
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
