"""parx for Conan 2: the headers and the libraries."""

from os.path import join

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir


class ParxConan(ConanFile):
    name = "parx"
    description = "Header-only C++20 collective communication and parallel training"
    license = "Apache-2.0"
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"

    @property
    def _checkout(self):
        return join(self.recipe_folder, "..", "..", "..")

    def set_version(self):
        text = load(self, join(self._checkout, "include", "parx", "core", "version.hpp"))
        self.version = text.split('#define PARX_VERSION "')[1].split('"')[0]

    def export(self):
        # The recipe is read again from Conan's cache, where it asks for its version once more.
        pass

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "cmake/*"):
            copy(self, pattern, self._checkout, self.export_sources_folder)

    def requirements(self):
        self.requires("fmt/[>=9 <12]", transitive_headers=True)
        self.requires("zlib/[>=1.2.11 <2]", transitive_headers=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        for what in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables[f"PARX_BUILD_{what}"] = False
        toolchain.cache_variables["PARX_NATIVE"] = False
        toolchain.cache_variables["PARX_INSTALL"] = True
        toolchain.cache_variables["PARX_INSTALL_LIBRARIES"] = True
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, join(self.package_folder, "licenses"))
        rmdir(self, join(self.package_folder, "lib", "cmake"))  # CMakeDeps makes its own package

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "parx")
        comm_headers = self._component("comm_header_only", "parx-comm-header-only", ["fmt::fmt"])
        comm_headers.system_libs = ["pthread", "dl"]
        self._component("header_only", "parx-header-only", ["comm_header_only", "zlib::zlib"])
        # The packages' libraries have baseline instructions, level 0 of parx/core/abi.hpp.
        comm = self._component("comm", "parx-comm", ["comm_header_only"], "parx_comm")
        comm.defines = ["PARX_SEPARATE_COMPILATION", "PARX_LIBRARY_VECTORS=0"]
        self._component("ddp", "parx-ddp", ["header_only", "comm"], "parx_ddp")
        self._component("parx", "parx", ["ddp"], "parx")
        models = self._component("models", "parx-models", ["parx"], "parx_models")
        models.defines = ["PARX_COMPILED_MODELS"]

    def _component(self, name, module, requires, library=None):
        component = self.cpp_info.components[name]
        component.set_property("cmake_target_name", f"parx::{name}")
        component.set_property("pkg_config_name", module)
        component.requires = requires
        component.bindirs = []
        component.libs = [library] if library else []
        return component
