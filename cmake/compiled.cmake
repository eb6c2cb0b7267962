# parx::compiled: the compiled form of parx (parx/src.hpp). A program that links it includes the same
# headers as with parx::parx, and compiles in a fraction of the time. It is built when something links
# it. Its objects fit programs that are compiled with the same vector instructions: with PARX_NATIVE
# those of this machine, which it then hands on to whoever links it.
file(STRINGS ${PROJECT_SOURCE_DIR}/include/parx/src.hpp parts REGEX "^#include <parx/.*/src[.]hpp>")
set(sources "")
foreach(part IN LISTS parts)
  string(REGEX REPLACE "#include <parx/(.*)/src[.]hpp>" "\\1" name "${part}")
  set(source ${PROJECT_BINARY_DIR}/compiled/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "${part}\n")
  list(APPEND sources ${source})
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${PROJECT_SOURCE_DIR}/include/parx/src.hpp)

add_library(parx_compiled STATIC EXCLUDE_FROM_ALL ${sources})
add_library(parx::compiled ALIAS parx_compiled)
set_target_properties(parx_compiled PROPERTIES EXPORT_NAME compiled POSITION_INDEPENDENT_CODE ON)
target_compile_definitions(parx_compiled PUBLIC PARX_SEPARATE_COMPILATION)
target_link_libraries(parx_compiled PUBLIC parx $<$<BOOL:${PARX_NATIVE}>:parx::native>)
