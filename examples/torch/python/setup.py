"""Builds parx_torch against the PyTorch of this Python: pip install --no-build-isolation ."""

import os
import sys
from pathlib import Path

from setuptools import setup

try:
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ModuleNotFoundError:
    sys.exit(f"parx_torch is built against the PyTorch of your Python, and {sys.executable} has "
             "none here. If it has one outside of pip: pip install --no-build-isolation")

# PARX_INCLUDE: parx's headers, if this folder was taken out of its tree. PARX_LIBRARY: the compiled
# parx::comm, its archives separated by ":", instead of compiling it here; CFLAGS then has what it
# was compiled with.
# PARX_NATIVE=0: for processors older than this machine's.
here = Path(__file__).resolve().parent
include = os.environ.get("PARX_INCLUDE") or here.parents[2] / "include"
library = os.environ.get("PARX_LIBRARY")
native = [] if os.environ.get("PARX_NATIVE") == "0" else ["-march=native"]
flags = ["-std=c++20", "-O2", "-g0", "-Wno-deprecated-declarations", *native]  # PyTorch's headers
flags += os.environ.get("CFLAGS", "").split()

setup(
    name="parx_torch",
    version="0.1",
    description="parx as a backend of torch.distributed",
    python_requires=">=3.9",
    packages=["parx_torch"],
    ext_modules=[
        CppExtension(
            "parx_torch._C",
            ["src/module.cpp"] if library else ["src/module.cpp", "src/parx.cpp"],
            include_dirs=[str(include)],
            define_macros=[("PARX_SEPARATE_COMPILATION", None), ("USE_DISTRIBUTED", None),
                           ("USE_C10D_GLOO", None)],
            extra_compile_args=flags,
            extra_objects=library.split(os.pathsep) if library else [],
            libraries=["fmt", "rt"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
    # PyTorch 2.5 and newer calls the first at its import, the versions that have the second only
    # when a program asks for the backend.
    entry_points={group: ["parx = parx_torch:_register"]
                  for group in ("torch.backends", "torch.distributed.backends")},
)
