"""Starting is fast because heavy packages are imported when they are needed, not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HEAVY = ("numpy", "jinja2", "asyncio", "email", "http")


@pytest.mark.parametrize("module", ["params", "sampling", "stops", "chat"])
def test_heavy_packages_are_absent(module: str) -> None:
    program = f"import sys, minfer.engine.{module}; print([name for name in {_HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_candidates_are_sampled_without_numpy() -> None:
    program = (
        "import sys\n"
        "from minfer.engine.params import GenerationParams\n"
        "from minfer.engine.sampling import Candidates, SamplerChain\n"
        "class Words:\n"
        "    n_vocab = 50000\n"
        "draw = SamplerChain(GenerationParams(), Words()).sample(Candidates([5], [2.0], 2.0), [3], 1)\n"
        "print(draw.id, 'numpy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "5 False\n"
