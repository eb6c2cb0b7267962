# parx for Spack, from the checkout that this repository of packages lies in.

import os

from spack.package import *


class Parx(CMakePackage):
    """Header-only C++20 collective communication and parallel training: rings over TCP and shared
    memory, DDP, FSDP, tensor and pipeline parallelism on clusters of CPUs."""

    git = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 5))

    license("Apache-2.0")

    version("main", branch="main")

    variant("tools", default=True, description="parxrun, parx_doctor, parx-bench and the like")
    variant("native", default=False, description="Libraries and tools for this machine's processor only")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("fmt@9:")
    depends_on("zlib-api")
    depends_on("boost@1.81:", when="+tools")
    depends_on("cxxopts@3:", when="+tools", type="build")

    conflicts("%gcc@:11", msg="parx needs C++20 as gcc 12 and clang 14 have it")

    tools = ("parxrun", "parx_doctor", "parx_checkpoint", "parx_plan", "parx_pipeline", "parx-bench")

    def cmake_args(self):
        return [
            self.define("PARX_BUILD_TESTS", False),
            self.define_from_variant("PARX_BUILD_EXAMPLES", "tools"),
            self.define_from_variant("PARX_BUILD_BENCHMARKS", "tools"),
            self.define("PARX_BUILD_TRAINERS", False),
            self.define_from_variant("PARX_NATIVE", "native"),
            self.define("PARX_INSTALL", True),
            self.define("PARX_INSTALL_LIBRARIES", True),
        ]

    @property
    def build_targets(self):
        return ["parx_models"] + (list(self.tools) if self.spec.satisfies("+tools") else [])

    def install(self, spec, prefix):
        with working_dir(self.build_directory):
            cmake = which("cmake", required=True)
            cmake("--install", ".")
