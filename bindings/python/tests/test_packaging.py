"""The source archive holds what a build needs."""

import pathlib
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_the_source_archive_is_whole(tmp_path, monkeypatch):
    build = pytest.importorskip("scikit_build_core.build")
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "strata", "cmake", "bindings", "CMakeLists.txt", "pyproject.toml"],
                            capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    monkeypatch.chdir(ROOT)
    with tarfile.open(tmp_path / build.build_sdist(str(tmp_path))) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    wanted = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert len(wanted) > 400 and wanted <= inside, sorted(wanted - inside)
    assert not any(name.startswith(("build/", "runs/", ".venv/")) for name in inside)
