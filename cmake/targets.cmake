# The header-only targets by need: parx::comm_header_only, the chapters from which a job is made, needs
# fmt and threads; parx::header_only is all of parx. The chapters of the first include each other alone,
# by the rules of tests/hygiene/layers.sh. What most programs link, parx::comm and parx::parx, are the
# libraries of these two (libraries.cmake).
set(parx_comm_chapters core types trace store transport comm launch mesh)

add_library(parx_comm_header_only INTERFACE)
add_library(parx::comm_header_only ALIAS parx_comm_header_only)
set_target_properties(parx_comm_header_only PROPERTIES EXPORT_NAME comm_header_only)
target_compile_features(parx_comm_header_only INTERFACE cxx_std_20)
target_link_libraries(parx_comm_header_only INTERFACE Threads::Threads fmt::fmt ${CMAKE_DL_LIBS})

file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.hpp)
list(JOIN parx_comm_chapters "|" chapters)
set(comm_headers ${headers})
list(FILTER comm_headers INCLUDE REGEX "/include/parx/(${chapters})([.]hpp|/.*)$")
list(REMOVE_ITEM headers ${comm_headers})
target_sources(parx_comm_header_only INTERFACE FILE_SET HEADERS
               BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${comm_headers})
if(PARX_COMM_ONLY)
  return()
endif()

find_package(ZLIB)
if(NOT ZLIB_FOUND)
  message(FATAL_ERROR
    "parx needs zlib (Debian: zlib1g-dev). The collectives alone, parx::comm, do not: configure with "
    "-DPARX_COMM_ONLY=ON.")
endif()
add_library(parx_header_only INTERFACE)
add_library(parx::header_only ALIAS parx_header_only)
set_target_properties(parx_header_only PROPERTIES EXPORT_NAME header_only)
target_link_libraries(parx_header_only INTERFACE parx_comm_header_only ZLIB::ZLIB)
target_sources(parx_header_only INTERFACE FILE_SET HEADERS
               BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${headers})
