# parx::native: link it to compile a program for the processor that compiles it. Not part of parx::parx,
# because such a program does not run on older processors than this one.
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

# Says so where Eigen multiplies and no flag in sight lets it use the processor's vector instructions.
function(parx_check_instructions)
  get_directory_property(options COMPILE_OPTIONS)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build)
  if(NOT "${options} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build}}" MATCHES "-m(arch|cpu|avx|sve)|-x[HC]|/arch:")
    message(STATUS "parx: without -march=native (or the target parx::native) products of matrices "
                   "use baseline instructions only, several times slower than this machine can do")
  endif()
endfunction()
