"""The engine as others install it: sdist, wheel, a fresh environment, with and without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from minfer.engine.testing import TinyModel, tiny_model
from paths import ROOT

PROVES = bool(os.environ.get("MINFER_PROVE") or os.environ.get("CI"))
pytestmark = pytest.mark.timeout(900)

ENGINE = ROOT / "libs/engine"
OTHERS = [*(ROOT / "libs").glob("*/src"), *(ROOT / "tools").glob("*/src")]
EXTENSIONS = {
    "minfer/engine/backends/native/_native.abi3.so",
    "minfer/engine/tokenizer/_strings.abi3.so",
}
NOTE = "Note: minfer was installed without compiled kernels"
_SDIST = "import sys, setuptools.build_meta as backend; print(backend.build_sdist(sys.argv[1]))"


def _run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "MINFER_REQUIRE_NATIVE"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy of the tracked sources: what was built in place here must not help."""
    root = tmp_path_factory.mktemp("engine")
    built = shutil.ignore_patterns("build", "*.so", "*.egg-info", "__pycache__")
    source = shutil.copytree(ENGINE, root / "source", ignore=built)
    name = _run(sys.executable, "-c", _SDIST, root, cwd=source).stdout.splitlines()[-1]
    return root / name


def _wheel(sdist: Path, folder: Path, compiler: str | None) -> Path:
    """A wheel from the sdist, built by pip without fetching anything."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-index", "--no-deps")
    flags = ("--no-build-isolation", "--no-cache-dir", "-w", folder)
    _run(*pip, *flags, sdist, cwd=folder, **({"CC": compiler} if compiler else {}))
    (wheel,) = folder.glob("*.whl")
    return wheel


class Installed:
    """A fresh environment that has this wheel, the other members' sources, and what else they import."""

    def __init__(self, wheel: Path, root: Path) -> None:
        self.here = root / "elsewhere"
        self.here.mkdir()
        (self.here / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama")))
        _run(sys.executable, "-m", "venv", "--without-pip", root / "venv", cwd=root)
        self._python = root / "venv/bin/python"
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self._python)
        _run(*pip, "install", "--no-index", "--no-deps", wheel, cwd=root)
        (packages,) = root.glob("venv/lib/python*/site-packages")
        # A .pth file in a directory that a .pth file names is not read: the editable members stay out.
        third_party = [path for path in sys.path if path.endswith("-packages")]
        members = [str(path) for path in OTHERS if path.parent != ENGINE]
        (packages / "rest.pth").write_text("\n".join([*members, *third_party]))

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`minfer-run` with these words, far from the sources."""
        return _run(self._python, "-m", "minfer.run", *words, cwd=self.here, PYTHONPATH="")


def _members(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def _sources() -> set[str]:
    """What a wheel holds without an extension."""
    source = ENGINE / "src"
    kept = (path for path in source.rglob("*") if path.suffix in (".py", ".pyi") or path.name == "py.typed")
    return {path.relative_to(source).as_posix() for path in kept}


def test_without_a_compiler_it_runs_on_numpy_and_says_so_once(sdist: Path, tmp_path: Path) -> None:
    wheel = _wheel(sdist, tmp_path, "/bin/false")
    assert _members(wheel) == _sources()
    installed = Installed(wheel, tmp_path)
    answer = installed("./tiny.gguf", "hi", "--greedy", "-n", "5")
    assert answer.stderr.count(NOTE) == 1
    facts = json.loads(installed("info", "./tiny.gguf", "--json").stdout)
    assert facts["backend"]["name"] == "numpy"


def test_with_a_compiler_the_wheel_has_the_kernels(sdist: Path, tmp_path: Path) -> None:
    if not PROVES:
        pytest.skip("compiling takes a while: make prove")
    wheel = _wheel(sdist, tmp_path, None)
    assert _members(wheel) == _sources() | EXTENSIONS
    installed = Installed(wheel, tmp_path)
    answer = installed("./tiny.gguf", "hi", "--greedy", "-n", "5")
    assert NOTE not in answer.stderr
    facts = json.loads(installed("info", "./tiny.gguf", "--json").stdout)
    assert facts["backend"]["name"].startswith("native-")
