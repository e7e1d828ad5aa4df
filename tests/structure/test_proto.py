"""The committed stubs are those of store.proto, and nothing heavy comes with them unasked."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from paths import ROOT

SOURCE = ROOT / "proto/minfer/store/v1/store.proto"
STUBS = ROOT / "libs/store/src/minfer/store/v1"


def test_the_stubs_were_made_from_this_file() -> None:
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    names = ["store_pb2.py", "store_pb2.pyi", "store_pb2_grpc.py"]
    firsts = {name: (STUBS / name).read_text().partition("\n")[0] for name in names}
    assert firsts == dict.fromkeys(names, f"# store.proto sha256: {digest}"), "run make proto"


def test_the_stubs_describe_what_the_file_says(tmp_path: Path) -> None:
    """Whatever generator is here compiles the file to the same description that the stubs carry."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    from minfer.store.v1 import store_pb2

    target = tmp_path / "store.descriptor"
    words = ["protoc", f"-I{ROOT / 'proto'}", f"--descriptor_set_out={target}", str(SOURCE)]
    assert protoc.main(words) == 0
    (compiled,) = FileDescriptorSet.FromString(target.read_bytes()).file
    committed = FileDescriptorProto()
    store_pb2.DESCRIPTOR.CopyToProto(committed)
    for description in (compiled, committed):
        for message in description.message_type:
            for field in message.field:
                field.ClearField("json_name")
    assert committed == compiled


@pytest.mark.skipif("MINFER_PROVE" not in os.environ, reason="installs a generator: make prove")
def test_make_proto_writes_what_is_committed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "proto/generate.py", tmp_path], check=True)
    made = {path.name: path.read_bytes() for path in tmp_path.rglob("store_pb2*") if path.is_file()}
    assert made == {path.name: path.read_bytes() for path in STUBS.glob("store_pb2*")}


def test_every_part_of_the_contract_is_explained() -> None:
    lines = SOURCE.read_text().splitlines()
    bare = [
        line
        for before, line in pairwise(lines)
        if re.match(r"\s*(rpc|service) ", line) and not before.strip().startswith("//")
    ]
    assert bare == []
