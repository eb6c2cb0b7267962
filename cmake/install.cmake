# What `cmake --install` puts where: the headers, the compiled form, the CMake package (one file of
# targets for each of its components) and the modules of pkg-config are the install component
# parx_development, the programs parx_programs.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Headers alone fit every architecture, and have a place of their own for that.
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/parx)
set(pkgconfig_dir ${CMAKE_INSTALL_DATADIR}/pkgconfig)
set(any_architecture ARCH_INDEPENDENT)
if(PARX_INSTALL_COMPILED)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/parx)
  set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  set(any_architecture "")
endif()

set(components "")
foreach(component IN ITEMS comm comm_compiled parx compiled models_compiled)
  set(target parx_${component})
  if(component STREQUAL parx)
    set(target parx)
  endif()
  if(NOT TARGET ${target} OR (component MATCHES compiled AND NOT PARX_INSTALL_COMPILED))
    continue()
  endif()
  list(APPEND components ${component})
  set(files "")
  if(NOT component MATCHES compiled)
    set(files FILE_SET HEADERS COMPONENT parx_development)
  endif()
  install(TARGETS ${target} EXPORT parx_${component} ${files} ARCHIVE COMPONENT parx_development)
  install(EXPORT parx_${component} NAMESPACE parx:: FILE parx_${component}.cmake
          DESTINATION ${package_dir} COMPONENT parx_development)
endforeach()

configure_package_config_file(cmake/parxConfig.cmake.in ${PROJECT_BINARY_DIR}/parxConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/parxConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion ${any_architecture})
install(FILES ${PROJECT_BINARY_DIR}/parxConfig.cmake ${PROJECT_BINARY_DIR}/parxConfigVersion.cmake
              cmake/native.cmake cmake/hdf5.cmake cmake/ucx.cmake
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

set(compiled_cflags -DPARX_SEPARATE_COMPILATION)
if(PARX_NATIVE)
  get_target_property(native parx::native INTERFACE_COMPILE_OPTIONS)
  list(APPEND compiled_cflags ${native})
endif()
parx_install_pc(parx-comm "Collective communication for clusters of CPUs" "fmt >= 9"
                CFLAGS -I\${includedir} -pthread LIBS -pthread -ldl)
if(comm_compiled IN_LIST components)
  parx_install_pc(parx-comm-compiled "parx-comm, its compiled form" parx-comm
                  CFLAGS ${compiled_cflags} LIBS -L\${libdir} -lparx_comm_compiled)
endif()
if(parx IN_LIST components)
  parx_install_pc(parx "${PROJECT_DESCRIPTION}" "parx-comm, zlib")
endif()
if(compiled IN_LIST components)
  parx_install_pc(parx-compiled "parx, its compiled form" "parx, parx-comm-compiled"
                  LIBS -L\${libdir} -lparx_compiled)
  parx_install_pc(parx-models-compiled "parx, its compiled form and its models in all layouts"
                  parx-compiled CFLAGS -DPARX_COMPILED_MODELS LIBS -L\${libdir} -lparx_models_compiled)
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
