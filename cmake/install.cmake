# What `cmake --install` puts where: the headers, the libraries, the CMake package (one file of
# targets for each of its components) and the modules of pkg-config are the install component
# parx_development, the programs parx_programs.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Headers alone fit every architecture, and have a place of their own for that.
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/parx)
set(pkgconfig_dir ${CMAKE_INSTALL_DATADIR}/pkgconfig)
set(any_architecture ARCH_INDEPENDENT)
if(PARX_INSTALL_LIBRARIES)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/parx)
  set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  set(any_architecture "")
endif()

set(components "")
foreach(component IN ITEMS comm_header_only header_only comm ddp parx models)
  set(target parx_${component})
  if(component STREQUAL parx)
    set(target parx)
  endif()
  set(files FILE_SET HEADERS COMPONENT parx_development)
  if(NOT component MATCHES header_only)
    set(files "")
  endif()
  if(NOT TARGET ${target} OR NOT (files OR PARX_INSTALL_LIBRARIES))
    continue()
  endif()
  list(APPEND components ${component})
  install(TARGETS ${target} EXPORT parx_${component} ${files} ARCHIVE COMPONENT parx_development)
  install(EXPORT parx_${component} NAMESPACE parx:: FILE parx_${component}.cmake
          DESTINATION ${package_dir} COMPONENT parx_development)
endforeach()

configure_package_config_file(cmake/parxConfig.cmake.in ${PROJECT_BINARY_DIR}/parxConfig.cmake
                              INSTALL_DESTINATION ${package_dir}
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/parxConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion ${any_architecture})
install(FILES ${PROJECT_BINARY_DIR}/parxConfig.cmake ${PROJECT_BINARY_DIR}/parxConfigVersion.cmake
              cmake/instructions.cmake cmake/hdf5.cmake cmake/ucx.cmake
        DESTINATION ${package_dir} COMPONENT parx_development)

# parx_install_pc(module description requires [CFLAGS flag...] [LIBS flag...])
function(parx_install_pc module description requires)
  cmake_parse_arguments(arg "" "" "CFLAGS;LIBS" ${ARGN})
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR
             BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} OUTPUT_VARIABLE includedir)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR
             BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} OUTPUT_VARIABLE libdir)
  list(JOIN arg_CFLAGS " " cflags)
  list(JOIN arg_LIBS " " libs)
  configure_file(cmake/parx.pc.in ${PROJECT_BINARY_DIR}/${module}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${module}.pc DESTINATION ${pkgconfig_dir}
          COMPONENT parx_development)
endfunction()

# parx-comm, parx-ddp, parx and parx-models are the libraries, where they are installed, otherwise the headers.
set(comm_flags "")
if(PARX_INSTALL_LIBRARIES)
  set(comm_flags CFLAGS -DPARX_SEPARATE_COMPILATION -DPARX_LIBRARY_VECTORS=${vectors} ${native}
                 LIBS -L\${libdir} -lparx_comm)
endif()
parx_install_pc(parx-comm-header-only "Collective communication for clusters of CPUs, header-only"
                "fmt >= 9" CFLAGS -I\${includedir} -pthread LIBS -pthread -ldl)
parx_install_pc(parx-comm "Collective communication for clusters of CPUs" parx-comm-header-only
                ${comm_flags})
if(NOT PARX_COMM_ONLY)
  set(ddp_flags "")
  set(flags "")
  set(models_flags "")
  if(PARX_INSTALL_LIBRARIES)
    set(ddp_flags LIBS -L\${libdir} -lparx_ddp)
    set(flags LIBS -L\${libdir} -lparx)
    set(models_flags CFLAGS -DPARX_COMPILED_MODELS LIBS -L\${libdir} -lparx_models)
  endif()
  parx_install_pc(parx-header-only "${PROJECT_DESCRIPTION}, header-only"
                  "parx-comm-header-only, zlib")
  parx_install_pc(parx-ddp "Data-parallel training on clusters of CPUs" "parx-header-only, parx-comm"
                  ${ddp_flags})
  parx_install_pc(parx "${PROJECT_DESCRIPTION}" parx-ddp ${flags})
  parx_install_pc(parx-models "parx and its models in all layouts" parx ${models_flags})
endif()

if(PARX_BUILD_EXAMPLES)
  # What users of an installed parx run. Those that are only checked (PARX_BUILD_TRAINERS=CHECK) are
  # no programs.
  foreach(tool IN ITEMS parxrun parx_doctor parx_slurm parx_checkpoint parx_plan parx_pipeline parx_report parx-bench)
    if(TARGET ${tool})
      get_target_property(type ${tool} TYPE)
      if(type STREQUAL EXECUTABLE)
        install(TARGETS ${tool} COMPONENT parx_programs)
      endif()
    endif()
  endforeach()
endif()

# For sites whose users load software by `module load parx`: MODULEPATH gets share/modulefiles.
option(PARX_INSTALL_MODULEFILES "Also install module files, for Lmod and Environment Modules" OFF)
if(PARX_INSTALL_MODULEFILES)
  set(module_dir ${CMAKE_INSTALL_DATADIR}/modulefiles/parx)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
             BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${module_dir} OUTPUT_VARIABLE to_prefix)
  foreach(language IN ITEMS tcl lua)
    set(file ${PROJECT_BINARY_DIR}/modulefiles/${PROJECT_VERSION})
    if(language STREQUAL lua)
      set(file ${file}.lua)
    endif()
    configure_file(cmake/modulefiles/parx.${language}.in ${file} @ONLY)
    install(FILES ${file} DESTINATION ${module_dir} COMPONENT parx_development)
  endforeach()
endif()
