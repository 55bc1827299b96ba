"""strata.data.convert: Parquet and Arrow files to JSONL and tokens."""

import datetime
import decimal
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from strata.data.convert import ConvertError, convert, find_sources, main

import strata as st
from strata.data import convert as module

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet


def rows_of(path):
    with pa.input_stream(os.fspath(path), compression="zstd") as stream:
        return [json.loads(line) for line in stream.read().decode().splitlines()]


def table(count, start=0):
    return pa.table(
        {"id": list(range(start, start + count)), "text": [f"text {i} \u00e9\n" for i in range(start, start + count)]}
    )


def test_every_kind_of_file(tmp_path):
    source = tmp_path / "in"
    (source / "sub").mkdir(parents=True)
    rows = table(3000)
    parquet.write_table(rows, source / "a.parquet", row_group_size=700)
    with pa.OSFile(os.fspath(source / "sub" / "b.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=500)
    with pa.OSFile(os.fspath(source / "c.arrow"), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows)
    (source / "notes.txt").write_text("not read")
    made = convert([source], tmp_path / "out", jobs=2)
    assert made == {"a.parquet.jsonl.zst": 3000, "c.arrow.jsonl.zst": 3000, "sub_b.arrow.jsonl.zst": 3000}
    for name in made:
        assert rows_of(tmp_path / "out" / name) == rows.to_pylist()
    assert convert([source / "a.parquet"], tmp_path / "few", columns=["text"]) == {"a.parquet.jsonl.zst": 3000}
    assert rows_of(tmp_path / "few" / "a.parquet.jsonl.zst")[2] == {"text": "text 2 \u00e9\n"}


def test_values(tmp_path):
    values = {
        "n": [1.5, float("nan")],
        "when": [datetime.datetime(2024, 1, 2, 3, 4, 5), None],
        "price": [decimal.Decimal("1.10"), None],
        "turns": [[{"role": "user", "content": "hi"}], []],
    }
    parquet.write_table(pa.table(values), tmp_path / "v.parquet")
    convert([tmp_path / "v.parquet"], tmp_path)
    assert rows_of(tmp_path / "v.parquet.jsonl.zst") == [
        {"n": 1.5, "when": "2024-01-02T03:04:05", "price": "1.10", "turns": [{"role": "user", "content": "hi"}]},
        {"n": None, "when": None, "price": None, "turns": []},
    ]
    parquet.write_table(pa.table({"raw": [b"\x00"], "x": [1]}), tmp_path / "b.parquet")
    with pytest.raises(ConvertError, match="row 1, column 'raw': JSON has no bytes; --columns leaves it out"):
        convert([tmp_path / "b.parquet"], tmp_path)
    convert([tmp_path / "b.parquet"], tmp_path, columns=["x"])
    assert rows_of(tmp_path / "b.parquet.jsonl.zst") == [{"x": 1}]


def test_what_is_done_is_not_done_again(tmp_path):
    for i in range(3):
        parquet.write_table(table(10, 10 * i), tmp_path / f"{i}.parquet")
    files = [tmp_path / f"{i}.parquet" for i in range(3)]
    out = tmp_path / "out"
    assert len(convert(files, out)) == 3
    assert convert(files, out) == {}
    parquet.write_table(table(11), files[1])
    (out / "2.parquet.jsonl.zst").write_bytes(b"cut")
    assert set(convert(files, out)) == {"1.parquet.jsonl.zst", "2.parquet.jsonl.zst"}
    assert set(convert(files, out, columns=["text"])) == {f"{i}.parquet.jsonl.zst" for i in range(3)}
    (out / "converted.json").write_text("{")
    assert len(convert(files, out, columns=["text"])) == 3
    assert sorted(os.listdir(out)) == [
        "0.parquet.jsonl.zst",
        "1.parquet.jsonl.zst",
        "2.parquet.jsonl.zst",
        "converted.json",
    ]


def test_a_killed_conversion_goes_on(tmp_path):
    for i in range(40):
        parquet.write_table(table(4000, i), tmp_path / f"{i:02}.parquet")
    out = tmp_path / "out"
    child = subprocess.Popen(
        [sys.executable, "-m", "strata.data.convert", tmp_path, "--out", out, "--jobs", "1", "--quiet"]
    )
    while child.poll() is None and len(list(out.glob("*.zst")) if out.exists() else []) < 2:
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    there = {p.name for p in out.glob("[!.]*.zst")}
    assert 1 < len(there) < 40
    made = convert([tmp_path], out, jobs=1)
    assert 0 < len(made) <= 40 - len(there) + 1  # the last may have been there, and not yet in the journal
    assert [len(rows_of(p)) for p in sorted(out.glob("[!.]*.zst"))] == [4000] * 40


def test_errors(tmp_path):
    def error(*arguments):
        with pytest.raises(ConvertError) as e:
            convert(*arguments)
        return str(e.value)

    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "bad.arrow").write_bytes(b"ARROW1")
    (tmp_path / "x.csv").write_text("a,b")
    parquet.write_table(table(1), tmp_path / "good.parquet")
    out = tmp_path / "out"
    assert "bad.parquet'" in error([tmp_path / "bad.parquet"], out)
    assert "bad.arrow'" in error([tmp_path / "bad.arrow"], out)
    assert "does not end with one of" in error([tmp_path / "x.csv"], out)
    assert "is no file or folder" in error([tmp_path / "none.parquet"], out)
    assert "has no column 'txt'; it has id, text" in error([tmp_path / "good.parquet"], out, ["txt"])
    os.makedirs(tmp_path / "d" / "e")
    parquet.write_table(table(1), tmp_path / "d" / "e" / "f.parquet")
    parquet.write_table(table(1), tmp_path / "d" / "e_f.parquet")
    assert "would both become 'e_f.parquet.jsonl.zst'" in error([tmp_path / "d"], out)
    os.makedirs(tmp_path / "empty")
    assert "has no .arrow" in error([tmp_path / "empty"], out)
    assert [p for p in os.listdir(out) if p != "converted.json"] == []


def test_without_pyarrow_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main([os.fspath(tmp_path), "--out", os.fspath(tmp_path)]) == 1
    assert "pip install pyarrow" in capsys.readouterr().err
    assert module.READERS[".parquet"] == "parquet"


def test_tokens(tmp_path):
    parquet.write_table(table(50), tmp_path / "a.parquet")
    parquet.write_table(table(30, 50), tmp_path / "b.parquet")
    tokens = os.fspath(tmp_path / "t")
    assert (
        main(
            [
                os.fspath(tmp_path),
                "--out",
                os.fspath(tmp_path / "out"),
                "--quiet",
                "--tokens",
                tokens,
                "--tokenizer",
                "byte",
            ]
        )
        == 0
    )
    file = st._core.TokenFile(tokens)
    text = "".join(f"text {i} \u00e9\n" for i in range(80))
    assert st._core.Tokenizer.bytes().decode(file.read(0, len(file)).tolist()) == text
    assert st._core.Tokenizer.load(tokens + ".tokenizer.json").vocab_size == 256
    assert (
        main(
            [
                os.fspath(tmp_path),
                "--out",
                os.fspath(tmp_path / "out"),
                "--tokens",
                tokens,
                "--tokenizer",
                "byte",
                "--field",
                "no",
            ]
        )
        == 1
    )
    assert len(find_sources([tmp_path])) == 2
