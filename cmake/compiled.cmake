# The compiled form of parx (parx/src.hpp), one library for each of the header-only targets:
# parx::comm_compiled for parx::comm, and parx::compiled, which includes it, for parx::parx; and
# parx::models_compiled, which adds the models of parx in all layouts (parallel/models.hpp). A
# program that links one includes the same headers and compiles in a fraction of the time. A library
# is built when something links it, and with PARX_INSTALL_COMPILED always. Its objects fit programs
# that are compiled with the same vector instructions: with PARX_NATIVE those of this machine, which
# it then hands on to whoever links it.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${PROJECT_SOURCE_DIR}/include/parx/src.hpp)
file(STRINGS ${PROJECT_SOURCE_DIR}/include/parx/src.hpp parts REGEX "^#include <parx/.*/src[.]hpp>")
set(comm_sources "")
set(sources "")
foreach(part IN LISTS parts)
  string(REGEX REPLACE "#include <parx/(.*)/src[.]hpp>" "\\1" name "${part}")
  set(source ${PROJECT_BINARY_DIR}/compiled/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "${part}\n")
  if(name IN_LIST parx_comm_chapters)
    list(APPEND comm_sources ${source})
  else()
    list(APPEND sources ${source})
  endif()
endforeach()

# parx_add_compiled(name library source...): the target parx_<name>, also parx::<name>.
function(parx_add_compiled name library)
  add_library(parx_${name} STATIC ${ARGN})
  add_library(parx::${name} ALIAS parx_${name})
  if(NOT PARX_INSTALL_COMPILED)
    set_target_properties(parx_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  set_target_properties(parx_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_definitions(parx_${name} PUBLIC PARX_SEPARATE_COMPILATION)
  target_link_libraries(parx_${name} PUBLIC ${library})
  if(PARX_NATIVE)
    target_link_libraries(parx_${name} PUBLIC parx::native)
  endif()
endfunction()

parx_add_compiled(comm_compiled parx_comm ${comm_sources})
if(NOT PARX_COMM_ONLY)
  parx_add_compiled(compiled parx ${sources})
  target_link_libraries(parx_compiled PUBLIC parx_comm_compiled)
  # Apart from it, since it takes 2 GB and 40 % of the time of all the other.
  set(source ${PROJECT_BINARY_DIR}/compiled/models_in_layouts.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include <parx/parallel/detail/models_impl.hpp>\n")
  parx_add_compiled(models_compiled parx_compiled ${source})
  target_compile_definitions(parx_models_compiled PUBLIC PARX_COMPILED_MODELS)
endif()
