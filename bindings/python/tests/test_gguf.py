"""GGUF files from Python: what is written, other programs read, to the same numbers and tokens."""

import numpy as np
import pytest

import strata as st

transformers = pytest.importorskip("transformers", reason="the files are compared with what transformers reads in them")
torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")

TEXT = "The engine reads a file: 12345 bytes, it's what 99% of models\n\n do.  Twice."
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
# Ways to cut texts as the models' own tokenizers have them; llama.cpp and transformers know them by name.
CUTS = {
    "llama": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SIZES = dict(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256)
CONFIGS = {
    "llama": dict(SIZES, model_type="llama", rope_theta=50000.0),
    "qwen2": dict(SIZES, model_type="qwen2", tie_word_embeddings=True),
}


def write_tokenizer(folder, cut):
    """BPE of bytes, of a few merges: the folder's files."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=cut == "llama"))
    pre = tokenizers.pre_tokenizers
    made.pre_tokenizer = pre.Sequence([pre.Split(tokenizers.Regex(CUTS[cut]), "isolated"),
                                       pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator([TEXT] * 4, tokenizers.trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<|endoftext|>", eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return fast


@pytest.fixture(params=sorted(CONFIGS), scope="module")
def folder(request, tmp_path_factory):
    """A tiny model by transformers, its folder, and the file that is made of it."""
    root = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**CONFIGS[request.param]))
    model = model.eval().float()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    model.save_pretrained(root / "folder")
    tokenizer = write_tokenizer(root / "folder", request.param)
    st.load_pretrained(root / "folder").save_gguf(root / "model.gguf", "f32")
    return root, model, tokenizer


def test_our_files_come_back(folder):
    root, _, tokenizer = folder
    one, two = st.load_pretrained(root / "folder"), st.load_pretrained(root / "model.gguf")
    ids = tokenizer(TEXT)["input_ids"]
    with st.no_grad():
        tokens = st.tensor([ids])
        assert st.equal(one(tokens), two(tokens))
    assert [two.tokenizer.decode(ids), two.special_ids] == [one.tokenizer.decode(ids), one.special_ids]
    assert two.tokenizer.encode(TEXT) == ids
    assert two.generation_config["eos_token_id"][0] == tokenizer.eos_token_id
    two.save_gguf(root / "again.gguf")
    assert (root / "again.gguf").read_bytes() == (root / "model.gguf").read_bytes()
    with pytest.raises(ValueError, match="Q4_K, Q5_K, Q6_K, not 'Q3_K'"):
        two.save_gguf(root / "x.gguf", "q3_k")


def test_the_gguf_package_reads_them(folder):
    gguf = pytest.importorskip("gguf")
    root, model, _ = folder
    file = gguf.GGUFReader(root / "model.gguf")
    tensors = {t.name: t for t in file.tensors}
    embedding = model.get_input_embeddings().weight.detach().numpy()
    assert np.array_equal(np.asarray(tensors["token_embd.weight"].data).reshape(embedding.shape), embedding)
    assert file.fields["general.architecture"].contents() == model.config.model_type
    assert len(file.fields["tokenizer.ggml.tokens"].contents()) == 512
    assert file.fields["tokenizer.chat_template"].contents() == TEMPLATE


def test_transformers_reads_them(folder):
    pytest.importorskip("gguf")
    root, model, tokenizer = folder
    again = transformers.AutoModelForCausalLM.from_pretrained(root, gguf_file="model.gguf", dtype=torch.float32).eval()
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    with torch.no_grad():
        want, got = model(ids).logits, again(ids).logits
    assert (got - want).abs().max() <= 1e-4 * want.abs().max()
    if model.config.model_type == "qwen2":  # of Llama's it makes a tokenizer of sentencepiece
        read = transformers.AutoTokenizer.from_pretrained(root, gguf_file="model.gguf")
        assert read(TEXT)["input_ids"] == tokenizer(TEXT)["input_ids"]


def test_llama_cpp_writes_the_same_tokens(folder):
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    root, model, tokenizer = folder
    file = llama_cpp.Llama(str(root / "model.gguf"), n_ctx=128, logits_all=True, verbose=False)
    ids = tokenizer(TEXT)["input_ids"]
    assert file.tokenize(TEXT.encode(), add_bos=False, special=True) == ids
    file.eval(ids)
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0].numpy()
    got = np.asarray(file.scores[: len(ids)])
    assert np.abs(got - want).max() <= 2e-2 * np.abs(want).max()  # its products have f16 in them
    ours = st.load_pretrained(root / "model.gguf").generate(ids, max_new_tokens=24, do_sample=False, eos_token_id=[])
    written, at = [], file.generate(ids, temp=0.0, reset=True)
    while len(written) < 24:
        written.append(next(at))
    assert ours[0].tokens == written


@pytest.mark.parametrize("kind, layers", [("relu", 2), ("gated-gelu", 2), ("gated-gelu", 3)])
def test_t5(kind, layers, tmp_path):
    """As llama.cpp's converter names it: by the gguf package's own table, and in transformers' hands."""
    gguf = pytest.importorskip("gguf")
    torch.manual_seed(2)
    config = transformers.T5Config(
        vocab_size=96, d_model=64, d_kv=24, d_ff=96, num_layers=2, num_decoder_layers=layers, num_heads=2, feed_forward_proj=kind,
        tie_word_embeddings=kind == "relu", decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).eval().float()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.2)
    model.save_pretrained(tmp_path / "folder")
    ours = st.load_pretrained(tmp_path / "folder")
    ours.save_gguf(tmp_path / "model.gguf", "f32")
    file = gguf.GGUFReader(tmp_path / "model.gguf")
    assert file.fields["general.architecture"].contents() == "t5"
    assert file.fields["t5.decoder_block_count"].contents() == layers and file.fields["t5.attention.key_length"].contents() == 24
    assert file.fields["t5.attention.relative_buckets_count"].contents() == 32
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.T5, layers)
    tensors = {t.name: np.asarray(t.data) for t in file.tensors}
    seen = set()
    for name, value in model.state_dict().items():
        if "embed_tokens" in name or (name == "lm_head.weight" and kind == "relu"):
            continue
        theirs = names.get_name(name, try_suffixes=(".weight",))
        assert np.array_equal(tensors[theirs].reshape(value.shape), value.numpy()), name
        seen.add(theirs)
    assert seen == set(tensors)
    again = st.load_pretrained(tmp_path / "model.gguf")
    source, tokens = torch.randint(1, 96, (1, 40)), torch.randint(1, 96, (1, 7))
    with st.no_grad():
        got = again(st.tensor(source.tolist()), tokens=st.tensor(tokens.tolist()))
        assert st.equal(got, ours(st.tensor(source.tolist()), tokens=st.tensor(tokens.tolist())))
    with torch.no_grad():
        want = model(input_ids=source, decoder_input_ids=tokens).logits
    assert np.abs(np.asarray(got.tolist()) - want.numpy()).max() <= 1e-4 * want.abs().max().item()
    again.save_gguf(tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "model.gguf").read_bytes()
    if (kind, layers) != ("gated-gelu", 2):
        return
    # transformers 5.24 takes every T5 of GGUF for a gated one with as many layers on either side, and gelu for relu: its weights
    # are compared.
    read = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32).state_dict()
    assert all(torch.equal(value, read[name]) for name, value in model.state_dict().items())
