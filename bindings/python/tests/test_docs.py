"""The Python blocks of docs/library/python.md, run one after the other as one program."""

import pathlib
import re

import strata as st

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "library" / "python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 6
    st.manual_seed(1)
    space = {"__name__": "page"}
    for i, block in enumerate(blocks):
        exec(compile(block, f"docs/library/python.md block {i + 1}", "exec"), space)

