# parx::ucx: what a program needs that includes <parx/transport/ucx.hpp>: UCX's headers. Its libraries
# are loaded when a job asks for them. Nothing where the headers are not found.
if(NOT TARGET parx::ucx)
  find_path(UCX_INCLUDE_DIR ucp/api/ucp.h HINTS ENV UCX_DIR PATH_SUFFIXES include)
  mark_as_advanced(UCX_INCLUDE_DIR)
  if(UCX_INCLUDE_DIR)
    add_library(parx::ucx INTERFACE IMPORTED GLOBAL)
    target_link_libraries(parx::ucx INTERFACE parx::comm_header_only)
    target_include_directories(parx::ucx INTERFACE ${UCX_INCLUDE_DIR})
  endif()
endif()
