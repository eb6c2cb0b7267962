"""Builds parx_torch against the PyTorch of this Python: pip install --no-build-isolation ."""

import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

# PARX_INCLUDE: parx's headers, if this folder was taken out of its tree. PARX_LIBRARY: the compiled
# parx::comm, instead of compiling it here; CFLAGS then has what it was compiled with.
# PARX_NATIVE=0: for processors older than this machine's.
here = Path(__file__).resolve().parent
include = os.environ.get("PARX_INCLUDE", here.parents[2] / "include")
library = os.environ.get("PARX_LIBRARY")
native = [] if os.environ.get("PARX_NATIVE") == "0" else ["-march=native"]
flags = ["-std=c++20", "-O2", "-g0", "-Wno-deprecated-declarations", *native]  # PyTorch's headers
flags += os.environ.get("CFLAGS", "").split()

setup(
    name="parx_torch",
    version="0.1",
    description="parx as a backend of torch.distributed",
    packages=["parx_torch"],
    ext_modules=[
        CppExtension(
            "parx_torch._C",
            ["src/module.cpp"] if library else ["src/module.cpp", "src/parx.cpp"],
            include_dirs=[str(include)],
            define_macros=[("PARX_SEPARATE_COMPILATION", None), ("USE_DISTRIBUTED", None),
                           ("USE_C10D_GLOO", None)],
            extra_compile_args=flags,
            extra_objects=[library] if library else [],
            libraries=["fmt", "rt"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
    entry_points={"torch.distributed.backends": ["parx = parx_torch:_register"]},
)
