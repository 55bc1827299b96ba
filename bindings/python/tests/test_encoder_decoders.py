"""Models that read one text, or sound, and write another: against what transformers computes (scripts/make-models)."""

import json
import shutil

import pytest

import strata as st
from test_pretrained import MODELS, load, near


@pytest.mark.parametrize("name", ["t5-plain", "t5-gated"])
def test_t5_answers_as_transformers_does(name):
    model, reference = load(name)
    assert model.kind == "encoder_decoder" and model.family == "t5"
    padding = reference["mask"] == 0
    with st.no_grad():
        near(model(reference["source"], tokens=reference["tokens"], padding=padding), reference["logits"])
    rows, lengths = reference["source"].tolist(), reference["mask"].sum(1).tolist()
    sources = [[int(i) for i in row[: int(n)]] for row, n in zip(rows, lengths)]
    want = [[int(i) for i in row] for row in reference["greedy"].tolist()]
    written = model.generate(sources, max_new_tokens=len(want[0]), eos_token_id=[])
    assert [w[0].tokens for w in written] == want
    assert model.generate(sources[1], max_new_tokens=5, eos_token_id=[])[0].tokens == want[1][:5]
    with pytest.raises(ValueError, match="tokens that it writes"):
        model(reference["source"])
    with pytest.raises(ValueError, match="without tokens"):
        model.generate([[]], max_new_tokens=2)
    with pytest.raises(ValueError, match="reads no sound"):
        model.transcribe(st.zeros(10), 16000)


def test_t5_learns():
    model, reference = load("t5-plain")
    model.train()
    optimizer = st.optim.AdamW(model.parameters(), lr=1e-2)
    source, tokens = reference["source"][:, :9].contiguous(), reference["tokens"][:, :6].contiguous()
    targets = reference["tokens"][:, 1:7].contiguous()
    first = model.loss(tokens, targets, source=source).item()
    for _ in range(12):
        optimizer.zero_grad()
        model.loss(tokens, targets, source=source).backward()
        optimizer.step()
    model.eval()
    assert model.loss(tokens, targets, source=source).item() < 0.7 * first


@pytest.mark.parametrize("name", ["whisper-plain", "whisper-untied"])
def test_whisper_writes_what_is_said(name, tmp_path):
    load(name)
    folder = tmp_path / name
    shutil.copytree(MODELS / name, folder)
    shutil.copy(folder / "transcripts_generation_config.json", folder / "generation_config.json")
    model, reference = st.load_pretrained(folder), st.load(str(MODELS / name / "reference.safetensors"))
    said = model.transcribe(reference["loud_end_sound"], 16000, language="de", timestamps=True)
    assert said["language"] == "<|de|>"
    tokens = [t for part in said["segments"] for t in part["tokens"]]
    assert tokens == [int(i) for i in reference["loud_end_tokens"].tolist()]
    times = [t for part in said["segments"] for t in (part["start"], part["end"])]
    assert times == pytest.approx([float(t) for t in reference["loud_end_times"].reshape(-1).tolist()])
    # Both channels of a file in 32-bit floats.
    wav = tmp_path / "a.wav"
    data = b"".join((int(x) & 0xFFFFFFFF).to_bytes(4, "little") * 2 for x in reference["loud_end_sound"].view(st.int32).tolist())
    header = b"WAVEfmt " + (16).to_bytes(4, "little") + (3).to_bytes(2, "little") + (2).to_bytes(2, "little")
    header += (16000).to_bytes(4, "little") + (128000).to_bytes(4, "little") + (8).to_bytes(2, "little") + (32).to_bytes(2, "little")
    body = header + b"data" + len(data).to_bytes(4, "little") + data
    wav.write_bytes(b"RIFF" + len(body).to_bytes(4, "little") + body)
    samples, rate = st.read_wav(wav)
    assert rate == 16000 and samples.shape == (2, reference["loud_end_sound"].numel())
    assert model.transcribe(wav, language="de") == said, "longer than a window: with times"
    without = model.transcribe(wav, language="de", timestamps=False, max_new_tokens=4)
    assert len(without["segments"]) == 4
    for wrong, part in ((dict(language="fr"), "de"), (dict(language=3), "language is a text"), (dict(timestamps="yes"), "timestamps"),
                        (dict(nonsense=1), "nonsense"), (dict(word_timestamps=1), "true or false"), (dict(temperature=[0, -1]), "temperature"),
                        (dict(temperature=[]), "empty list"), (dict(logprob_threshold="x"), "is a number"),
                        (dict(prompt_condition_type="x"), "all-segments"), (dict(prompt="Anna"), "tokenizer")):
        with pytest.raises(ValueError, match=part):
            model.transcribe(samples, 16000, **wrong)
    with pytest.raises(ValueError, match="want a rate"):
        model.transcribe(samples)
    with pytest.raises(ValueError, match="8000"):
        model.transcribe(samples, 8000)
    with pytest.raises(ValueError, match="transcribe it"):
        model.generate([1, 2])
    json.dumps(said)

    def tokens_of(result):
        return [t for part in result["segments"] for t in part["tokens"]]

    timed = model.transcribe(reference["words_sound"], 16000, language="de", timestamps=True, word_timestamps=True, condition_on_prev_tokens=True)
    assert tokens_of(timed) == [int(i) for i in reference["words_tokens"].tolist()]
    ends = [t for part in timed["segments"] for t in part["token_ends"]]
    assert ends == pytest.approx([float(t) for t in reference["words_token_times"].tolist()], abs=1e-5)
    _, logprob, _ = (float(t) for t in reference["unlikely_thresholds"].tolist())
    call = dict(language="de", timestamps=True, condition_on_prev_tokens=True, logprob_threshold=logprob, temperature=[0, 0.7], top_k=1)
    unlikely = model.transcribe(reference["unlikely_sound"], 16000, **call)
    assert tokens_of(unlikely) == [int(i) for i in reference["unlikely_tokens"].tolist()]
    assert {part["temperature"] for part in unlikely["segments"]} == {0, 0.7}
    # What a file says counts where the call does not.
    settings = json.loads((folder / "generation_config.json").read_text())
    settings |= dict(condition_on_prev_tokens=True, logprob_threshold=logprob)
    (folder / "generation_config.json").write_text(json.dumps(settings))
    again = st.load_pretrained(folder)
    assert again.transcribe(reference["unlikely_sound"], 16000, language="de", timestamps=True, temperature=[0, 0.7], top_k=1) == unlikely
    plain = again.transcribe(reference["long_sound"], 16000, language="de", timestamps=True, logprob_threshold=None, condition_on_prev_tokens=False)
    assert tokens_of(plain) == [int(i) for i in reference["long_tokens"].tolist()]
