# The libraries, which are what programs link unless they ask for a header-only target:
#
#   parx::comm    the compiled form (parx/src.hpp) of parx::comm_header_only
#   parx::ddp     parx::comm, and what a data-parallel program needs: tensors, layers, data, checkpoints
#   parx::parx    parx::ddp and all the rest: that of parx::header_only
#   parx::models  parx::parx, and the models of parx (parallel/models.hpp)
#
# And, for programs that run on any processor of the architecture, two that are not installed:
# parx::comm_portable is parx::comm without what PARX_NATIVE adds, and parx::core_portable is its chapter
# core, enough for programs that start ranks and are none.
#
# A program includes the same headers with either and compiles in a fraction of the time. A library is
# built when something links it, and with PARX_INSTALL_LIBRARIES always.
#
# Objects and library must be compiled with the same vector instructions, of which there are three levels
# (core/abi.hpp). A library has those of the flags of the project that it is built in, and with
# PARX_NATIVE those of this machine's processor, which it then hands on to what links it. Whoever links
# it with others is told so when configuring (instructions.cmake) and by the compiler.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${PROJECT_SOURCE_DIR}/include/parx/src.hpp)
file(STRINGS ${PROJECT_SOURCE_DIR}/include/parx/src.hpp parts REGEX "^#include <parx/.*/src[.]hpp>")
# Chapters whose objects would repeat much of each other's are compiled as one file.
set(start launch mesh)
set(layers autograd ddp nn optim reduction tensor)
set(files checkpoint data)
set(layouts fsdp parallel pipeline plan tensor_parallel train)
set(parx_ddp_files layers files)
set(comm_sources "")
set(ddp_sources "")
set(sources "")
foreach(part IN LISTS parts)
  string(REGEX REPLACE "#include <parx/(.*)/src[.]hpp>" "\\1" name "${part}")
  set(file ${name})
  foreach(united start layers files layouts)
    if(name IN_LIST ${united})
      set(file ${united})
    endif()
  endforeach()
  string(APPEND content_of_${file} "${part}\n")
  if(name IN_LIST parx_comm_chapters)
    list(APPEND comm_sources ${file})
  elseif(file IN_LIST parx_ddp_files)
    list(APPEND ddp_sources ${file})
  else()
    list(APPEND sources ${file})
  endif()
endforeach()
foreach(list comm_sources ddp_sources sources)
  list(REMOVE_DUPLICATES ${list})
  foreach(file IN LISTS ${list})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/compiled/${file}.cpp CONTENT "${content_of_${file}}")
  endforeach()
  list(TRANSFORM ${list} REPLACE "(.+)" "${PROJECT_BINARY_DIR}/compiled/\\1.cpp")
endforeach()

# The level of vector instructions of this project's flags, with those of PARX_NATIVE and without.
set(native "")
if(PARX_NATIVE)
  get_target_property(native parx::native INTERFACE_COMPILE_OPTIONS)
endif()
parx_vectors_of_flags(vectors "${native}" ${PROJECT_SOURCE_DIR}/include)
parx_vectors_of_flags(portable_vectors "" ${PROJECT_SOURCE_DIR}/include)

# parx_add_library(target headers vectors source...): the compiled form of the target `headers`.
function(parx_add_library target headers vectors)
  add_library(${target} STATIC ${ARGN})
  string(REGEX REPLACE "^parx_" "" name ${target})
  add_library(parx::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_definitions(${target} PUBLIC PARX_SEPARATE_COMPILATION
                                              PARX_LIBRARY_VECTORS=${vectors})
  target_link_libraries(${target} PUBLIC ${headers})
endfunction()

# parx_add_native_library(target headers source...): one that is installed, and native with PARX_NATIVE.
function(parx_add_native_library target headers)
  parx_add_library(${target} ${headers} ${vectors} ${ARGN})
  if(NOT PARX_INSTALL_LIBRARIES)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  if(PARX_NATIVE)
    target_link_libraries(${target} PUBLIC parx::native)
  endif()
endfunction()

# parx_compile_quickly(target): at -O1 in a release, in half the time, for programs that start a job or look
# at one and compute nothing.
function(parx_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
endfunction()

parx_add_native_library(parx_comm parx_comm_header_only ${comm_sources})
if(PARX_NATIVE)
  set(core ${PROJECT_BINARY_DIR}/compiled/core.cpp)
  parx_add_library(parx_core_portable parx_comm_header_only ${portable_vectors} ${core})
  list(REMOVE_ITEM comm_sources ${core})
  parx_add_library(parx_comm_portable parx_core_portable ${portable_vectors} ${comm_sources})
  foreach(library parx_core_portable parx_comm_portable)
    parx_compile_quickly(${library})
    set_target_properties(${library} PROPERTIES EXCLUDE_FROM_ALL ON)
  endforeach()
else()
  add_library(parx::comm_portable ALIAS parx_comm)
  add_library(parx::core_portable ALIAS parx_comm)
endif()
if(NOT PARX_COMM_ONLY)
  parx_add_native_library(parx_ddp parx_header_only ${ddp_sources})
  target_link_libraries(parx_ddp PUBLIC parx_comm)
  parx_add_native_library(parx parx_ddp ${sources})
  # Apart from it, for programs with models of their own.
  set(source ${PROJECT_BINARY_DIR}/compiled/models_in_layouts.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include <parx/parallel/detail/models_impl.hpp>\n")
  parx_add_native_library(parx_models parx ${source})
  target_compile_definitions(parx_models PUBLIC PARX_COMPILED_MODELS)
endif()
