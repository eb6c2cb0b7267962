# The vector instructions that a program and parx's libraries are compiled for.
#
# parx::native: link it to compile a program for the processor that compiles it. Not part of the
# header-only targets, because such a program does not run on older processors than this one; the
# libraries hand it on where they were built with PARX_NATIVE.
if(NOT TARGET parx::native)
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-march=native PARX_HAS_MARCH_NATIVE)
  check_cxx_compiler_flag(-mcpu=native PARX_HAS_MCPU_NATIVE)
  add_library(parx::native INTERFACE IMPORTED GLOBAL)
  if(PARX_HAS_MARCH_NATIVE)
    target_compile_options(parx::native INTERFACE -march=native)
  elseif(PARX_HAS_MCPU_NATIVE)
    target_compile_options(parx::native INTERFACE -mcpu=native)
  endif()
endif()

# parx_vectors_of_flags(result flags include_directory): the level of vector instructions that core/abi.hpp
# finds with these flags and the project's own, 0 (baseline), 1 (AVX2) or 2 (AVX-512).
function(parx_vectors_of_flags result flags include_directory)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  set(flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} ${flags}")
  string(REGEX REPLACE "[;:<>]" " " flags "${flags}")  # lists and generator expressions
  string(REGEX MATCHALL "( |^)-m[^ ]+" flags "${flags}")
  list(TRANSFORM flags STRIP)
  list(JOIN flags " " key)
  get_property(level GLOBAL PROPERTY "parx_vectors_of ${key}")
  if("${level}" STREQUAL "")
    execute_process(
      COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 ${flags} -I${include_directory} -E -dM -x c++
              -include parx/core/abi.hpp /dev/null
      OUTPUT_VARIABLE macros ERROR_VARIABLE errors RESULT_VARIABLE code)
    if(code OR NOT macros MATCHES "#define PARX_VECTORS_LEVEL ([0-9]+)")
      message(FATAL_ERROR "parx: ${CMAKE_CXX_COMPILER} does not preprocess parx/core/abi.hpp with the "
                          "flags \"${key}\":\n${errors}")
    endif()
    set(level ${CMAKE_MATCH_1})
    set_property(GLOBAL PROPERTY "parx_vectors_of ${key}" ${level})
  endif()
  set(${result} ${level} PARENT_SCOPE)
endfunction()

# At the end of configuring, when the project's targets have their flags and libraries: stops where a
# target and the library that it links are compiled for other vector instructions, and says so where
# matrices are multiplied without any.
function(parx_check_instructions include_directory)
  get_property(is_called GLOBAL PROPERTY parx_checks_instructions SET)
  if(is_called)
    return()
  endif()
  set_property(GLOBAL PROPERTY parx_checks_instructions "${include_directory}")
  cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL parx_look_at_instructions)
endfunction()

function(parx_look_at_instructions)
  get_property(include_directory GLOBAL PROPERTY parx_checks_instructions)
  set(slow "")
  parx_targets_below("${CMAKE_SOURCE_DIR}" targets)
  foreach(target IN LISTS targets)
    set(flags "")
    set(seen "")
    get_property(folder TARGET ${target} PROPERTY SOURCE_DIR)
    get_property(options DIRECTORY "${folder}" PROPERTY COMPILE_OPTIONS)
    get_property(own TARGET ${target} PROPERTY COMPILE_OPTIONS)
    list(APPEND flags ${options} ${own})
    get_property(linked TARGET ${target} PROPERTY LINK_LIBRARIES)
    parx_follow_links("${linked}" flags seen)
    set(library "")
    foreach(name IN ITEMS models parx comm comm_portable)
      if("parx::${name}" IN_LIST seen AND NOT library)
        set(library parx::${name})
      endif()
    endforeach()
    if(NOT library AND NOT "parx::header_only" IN_LIST seen)
      continue()
    endif()
    parx_vectors_of_flags(level "${flags}" "${include_directory}")
    if(library)
      parx_vectors_of_library(${library} expected)
      if(NOT "${expected}" STREQUAL "" AND NOT "${expected}" STREQUAL "${level}")
        parx_refuse_instructions(${target} ${level} ${library} ${expected})
      endif()
    endif()
    if(level EQUAL 0 AND NOT library MATCHES "comm")
      list(APPEND slow ${target})
    endif()
  endforeach()
  if(slow AND CMAKE_HOST_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(JOIN slow ", " slow)
    message(STATUS
      "parx: without -march=native products of matrices use baseline instructions only, several times "
      "slower than this machine can do (${slow}): set(PARX_NATIVE ON) before add_subdirectory(parx), an "
      "installation of parx with -DPARX_NATIVE=ON, or -march=native in CMAKE_CXX_FLAGS")
  endif()
endfunction()

function(parx_refuse_instructions target level library expected)
  set(names "baseline instructions" "AVX2" "AVX-512")
  list(GET names ${level} of_target)
  list(GET names ${expected} of_library)
  message(FATAL_ERROR
    "parx: the target ${target} is compiled for ${of_target}, and ${library}, which it links, for "
    "${of_library}: they would not link. Compile both for this machine by set(PARX_NATIVE ON) before "
    "add_subdirectory(parx) (an installed parx: by -DPARX_NATIVE=ON when it is configured), which "
    "${target} then is, too; or both by the same flags in CMAKE_CXX_FLAGS; or link parx::header_only "
    "(parx::comm_header_only), which is no library.")
endfunction()

# The level of a library of parx: of its definitions, which an installed library has as well.
function(parx_vectors_of_library library result)
  get_property(definitions TARGET ${library} PROPERTY INTERFACE_COMPILE_DEFINITIONS)
  set(${result} "" PARENT_SCOPE)
  if(definitions MATCHES "PARX_LIBRARY_VECTORS=([0-9])")
    set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
endfunction()

# The targets with sources of a folder and of those below it, without parx's own.
function(parx_targets_below folder result)
  set(found "")
  if(NOT folder STREQUAL "${parx_SOURCE_DIR}")
    get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
    get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
    foreach(target IN LISTS targets)
      get_property(type TARGET ${target} PROPERTY TYPE)
      if(type MATCHES "EXECUTABLE|STATIC|SHARED|MODULE|OBJECT")
        list(APPEND found ${target})
      endif()
    endforeach()
    foreach(below IN LISTS folders)
      parx_targets_below("${below}" more)
      list(APPEND found ${more})
    endforeach()
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Appends what the libraries `linked`, and those behind them, hand on as compile options to the list named
# `flags_name`, and their names to that named `seen_name`; parx's own as users write them.
function(parx_follow_links linked flags_name seen_name)
  set(all_flags "${${flags_name}}")
  set(all_seen "${${seen_name}}")
  foreach(library IN LISTS linked)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" library "${library}")
    if(NOT TARGET "${library}")
      continue()
    endif()
    get_property(aliased TARGET ${library} PROPERTY ALIASED_TARGET)
    if(aliased)
      set(library ${aliased})
    endif()
    string(REGEX REPLACE "^parx_(comm_header_only|header_only|comm_portable|comm|models)$" "parx::\\1" name "${library}")
    string(REGEX REPLACE "^parx$" "parx::parx" name "${name}")
    if(name IN_LIST all_seen)
      continue()
    endif()
    list(APPEND all_seen ${name})
    get_property(options TARGET ${library} PROPERTY INTERFACE_COMPILE_OPTIONS)
    get_property(behind TARGET ${library} PROPERTY INTERFACE_LINK_LIBRARIES)
    list(APPEND all_flags ${options})
    parx_follow_links("${behind}" all_flags all_seen)
  endforeach()
  set(${flags_name} "${all_flags}" PARENT_SCOPE)
  set(${seen_name} "${all_seen}" PARENT_SCOPE)
endfunction()
