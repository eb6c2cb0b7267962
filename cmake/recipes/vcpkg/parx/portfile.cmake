# An overlay port: its source is the checkout that it lies in.
set(VCPKG_BUILD_TYPE release)  # debug builds link the same libraries
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DPARX_BUILD_TESTS=OFF
    -DPARX_BUILD_EXAMPLES=OFF
    -DPARX_BUILD_BENCHMARKS=OFF
    -DPARX_NATIVE=OFF
    -DPARX_INSTALL=ON
    -DPARX_INSTALL_LIBRARIES=ON
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/parx)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
