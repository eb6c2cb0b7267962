# What parx's own programs (examples, tests, benchmarks) are compiled with. Nothing here reaches a
# project that uses parx.
include_guard()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

# parx_portable_program is for those that a user starts first: they run on any processor of this
# architecture. parx_program is for all others.
add_library(parx_portable_program INTERFACE)
target_link_libraries(parx_portable_program INTERFACE parx::header_only)
target_compile_options(parx_portable_program INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast
  -Wnon-virtual-dtor -Woverloaded-virtual -Wextra-semi -Wcast-align
  $<$<BOOL:${PARX_WERROR}>:-Werror>)
# g++ 12 takes AVX-512's "undefined" registers for uninitialised variables (GCC bug 105593).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(parx_portable_program INTERFACE
                         -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
# PARX_HAS_UCX: they can be started with PARX_TRANSPORT=ucx.
if(TARGET parx::ucx)
  target_link_libraries(parx_portable_program INTERFACE parx::ucx)
  target_compile_definitions(parx_portable_program INTERFACE PARX_HAS_UCX)
endif()
add_library(parx_program INTERFACE)
target_link_libraries(parx_program INTERFACE parx_portable_program)

# Without the processor's vector instructions a matrix product is about eight times slower.
if(PARX_NATIVE)
  target_link_libraries(parx_program INTERFACE parx::native)
elseif(PROJECT_IS_TOP_LEVEL)
  message(WARNING "PARX_NATIVE=OFF: matrix products use baseline instructions only, "
                  "several times slower than this machine can do.")
endif()

find_package(cxxopts CONFIG REQUIRED)
# Not needed by parx: an oracle of its tests, a peer of its benchmarks, and what the arrays of
# examples/first/raw_adapter.cpp are.
find_package(Eigen3 3.4 CONFIG QUIET)

# Without optimisation clang 14 compiles parx in a third of the time of g++ 12, with it in two thirds or
# all of it; that its objects fit a library that g++ has made is worth a test by itself.
set(PARX_TEST_COMPILER "" CACHE STRING
  "Compile with this what both compilers should compile and one is enough for in each case")
function(parx_use_test_compiler target)
  if(PARX_TEST_COMPILER)
    get_target_property(before ${target} CXX_COMPILER_LAUNCHER)
    if(NOT before)
      set(before "")
    endif()
    list(APPEND before bash ${PROJECT_SOURCE_DIR}/cmake/other_compiler.sh ${PARX_TEST_COMPILER})
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${before}")
    target_compile_options(${target} PRIVATE -Wno-unknown-warning-option)
  endif()
endfunction()

# parx_add_program(name source...): an executable in build/<preset>/bin. Where `parx_only_check` is set, its
# sources are only checked: the compiler reads them and makes no code.
# It links `parx_library`, which is empty or one of libraries.cmake's; where `parx_portable` is set,
# it is portable.
function(parx_add_program name)
  if(parx_only_check)
    add_library(${name} OBJECT ${ARGN})
    set_target_properties(${name} PROPERTIES
      CXX_COMPILER_LAUNCHER "bash;${PROJECT_SOURCE_DIR}/cmake/check_source.sh")
  else()
    add_executable(${name} ${ARGN})
  endif()
  set(kind parx_program)
  if(parx_portable)
    set(kind parx_portable_program)
    parx_compile_quickly(${name})
  endif()
  target_link_libraries(${name} PRIVATE ${kind} cxxopts::cxxopts)
  if(parx_library)
    target_link_libraries(${name} PRIVATE ${parx_library})
  endif()
endfunction()

# parx_keep_commas(target): a path of --needs and a value of --env may have commas in them.
function(parx_keep_commas target)
  target_compile_definitions(${target} PRIVATE "CXXOPTS_VECTOR_DELIMITER='\\0'")
endfunction()
