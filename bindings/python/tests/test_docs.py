"""The Python blocks of the pages, those of a page run one after the other as one program."""

import pathlib
import re

import pytest
import strata as st

ROOT = pathlib.Path(__file__).resolve().parents[3]


PAGES = [("docs/library/python.md", 6), ("docs/library/python_array_api.md", 1), ("README.md", 1)]


@pytest.mark.parametrize(("page", "least"), PAGES)
def test_the_page_runs(page, least, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= least
    st.manual_seed(1)
    space = {"__name__": "page"}
    for i, block in enumerate(blocks):
        exec(compile(block, f"{page} block {i + 1}", "exec"), space)

