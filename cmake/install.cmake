include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Headers only, hence the architecture-independent place.
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/parx)

install(TARGETS parx EXPORT parxTargets FILE_SET HEADERS)
install(EXPORT parxTargets NAMESPACE parx:: DESTINATION ${package_dir})
configure_package_config_file(cmake/parxConfig.cmake.in ${PROJECT_BINARY_DIR}/parxConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/parxConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/parxConfig.cmake ${PROJECT_BINARY_DIR}/parxConfigVersion.cmake
              cmake/native.cmake cmake/FindCBLAS.cmake cmake/FindDNNL.cmake
        DESTINATION ${package_dir})
if(PARX_BUILD_EXAMPLES)
  # What users of an installed parx run. Those that are only checked (PARX_BUILD_TRAINERS=CHECK) are
  # no programs.
  foreach(tool IN ITEMS parxrun parx_doctor parx_checkpoint parx_plan parx_pipeline parx_report parx-bench)
    if(TARGET ${tool})
      get_target_property(type ${tool} TYPE)
      if(type STREQUAL EXECUTABLE)
        install(TARGETS ${tool})
      endif()
    endif()
  endforeach()
endif()
