"""The native extensions. Everything else about the package is in pyproject.toml.

Without a compiler the package installs and runs on numpy. MINFER_REQUIRE_NATIVE=1 makes a failed build
fatal. The C library under csrc/ is compiled into the backend's extension, all files at once.
"""

from __future__ import annotations

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

_HERE = Path(__file__).resolve().parent
_BACKEND = "minfer.engine.backends.native._native"
_STRINGS = "minfer.engine.tokenizer._strings"
_LIMITED = "0x030b0000"  # Python 3.11: one binary for it and all later ones


def _relative(pattern: str) -> list[str]:
    return sorted(path.relative_to(_HERE).as_posix() for path in _HERE.glob(pattern))


class ParallelBuild(build_ext):
    """Compiles the C files of an extension at the same time."""

    def build_extensions(self) -> None:
        """As setuptools does, with the compiler's loop over files spread over threads."""
        compile_all = self.compiler.compile

        def compile_in_parallel(sources: list[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                parts = list(pool.map(lambda source: compile_all([source], **options), sources))
            return [name for part in parts for name in part]

        self.compiler.compile = compile_in_parallel
        super().build_extensions()


class Abi3Wheel(bdist_wheel):
    """Names the wheel after the stable ABI."""

    def get_tag(self) -> tuple[str, str, str]:
        """cp311-abi3 on CPython."""
        python, abi, system = super().get_tag()
        return ("cp311", "abi3", system) if python.startswith("cp") else (python, abi, system)


def _extension(module: str, sources: list[str]) -> Extension:
    is_msvc = sys.platform == "win32"
    flags = [] if is_msvc else ["-O3", "-std=c11", "-ffp-contract=off", "-fvisibility=hidden", "-g0"]
    return Extension(
        module,
        sources=[f"src/{module.replace('.', '/')}.pyx", *sources],
        depends=[*_relative("csrc/*.h"), *_relative("src/**/*.pxd")],
        include_dirs=["csrc"],
        define_macros=[("Py_LIMITED_API", _LIMITED)],
        extra_compile_args=flags,
        libraries=[] if is_msvc else ["m", "pthread"],
        py_limited_api=True,
    )


def _extensions() -> list[Extension]:
    if sys.implementation.name != "cpython" or platform.system() == "Windows":
        return []  # POSIX threads and mmap
    from Cython.Build import cythonize

    extensions = [_extension(_BACKEND, _relative("csrc/*.c")), _extension(_STRINGS, [])]
    built: list[Extension] = cythonize(extensions, build_dir="build", include_path=["src"])
    for extension in built:  # cythonize() makes new ones and forgets `optional`
        extension.optional = os.environ.get("MINFER_REQUIRE_NATIVE") != "1"
    return built


setup(ext_modules=_extensions(), cmdclass={"build_ext": ParallelBuild, "bdist_wheel": Abi3Wheel})
