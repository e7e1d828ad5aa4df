"""Generate the stubs of minfer.store.v1; they are committed, so that installing needs no compiler.

Generated code sets the floor of grpcio and protobuf for everybody who installs minfer: it is made with the
oldest generator that knows every Python that minfer supports, in an environment of its own.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

GENERATOR = ("grpcio-tools==1.62.3", "setuptools<81")  # that version of it imports pkg_resources
ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "proto/minfer/store/v1/store.proto"
TARGET = ROOT / "libs/store/src"


def main(target: Path = TARGET) -> None:
    """Write store_pb2.py, its types and store_pb2_grpc.py below `target`, marked with SOURCE's digest."""
    with tempfile.TemporaryDirectory() as directory:
        python = f"{directory}/bin/python"
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *GENERATOR], check=True)
        outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
        words = ["-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", *outputs, str(SOURCE)]
        subprocess.run([python, *words], check=True)
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    for path in sorted((target / "minfer/store/v1").glob("store_pb2*")):
        path.write_text(f"# store.proto sha256: {digest}\n{path.read_text()}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
