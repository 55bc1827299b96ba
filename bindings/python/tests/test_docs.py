"""The Python blocks of docs/library/python.md, run one after the other as one program; the names that the package shows."""

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


def test_stub_and_package_show_the_same_names():
    stub = (ROOT / "bindings" / "python" / "strata" / "__init__.pyi").read_text()
    names = re.findall(r"(\w+) as \1", stub)
    assert len(names) > 30
    for name in names:
        assert hasattr(st, name), name
    source = (ROOT / "bindings" / "python" / "strata" / "__init__.py").read_text()
    imported = re.sub(r"#.*", "", source)
    for group in re.findall(r"^from \S+ import \(?([^()*]+?)\)?$", imported, re.S | re.M):
        for name in re.findall(r"\w+(?=\s*(?:,|$))", group, re.M):
            if not name.startswith("_") or name == "__version__":
                assert name in names, f"{name} is not in __init__.pyi"
