# The targets by need: parx::comm, the chapters from which a job is made, needs fmt and threads;
# parx::parx is all of parx. The chapters of parx::comm include each other alone, by the rules of
# tests/hygiene/layers.sh.
set(parx_comm_chapters core types trace store transport comm launch mesh)

add_library(parx_comm INTERFACE)
add_library(parx::comm ALIAS parx_comm)
set_target_properties(parx_comm PROPERTIES EXPORT_NAME comm)
target_compile_features(parx_comm INTERFACE cxx_std_20)
target_link_libraries(parx_comm INTERFACE Threads::Threads fmt::fmt ${CMAKE_DL_LIBS})

file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.hpp)
list(JOIN parx_comm_chapters "|" chapters)
set(comm_headers ${headers})
list(FILTER comm_headers INCLUDE REGEX "/include/parx/(${chapters})([.]hpp|/.*)$")
list(REMOVE_ITEM headers ${comm_headers})
target_sources(parx_comm INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
               FILES ${comm_headers})
if(PARX_COMM_ONLY)
  return()
endif()

find_package(ZLIB)
if(NOT ZLIB_FOUND)
  message(FATAL_ERROR
    "parx needs zlib (Debian: zlib1g-dev). The collectives alone, parx::comm, do not: configure with "
    "-DPARX_COMM_ONLY=ON.")
endif()
add_library(parx INTERFACE)
add_library(parx::parx ALIAS parx)
target_link_libraries(parx INTERFACE parx_comm ZLIB::ZLIB)
target_sources(parx INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
               FILES ${headers})
