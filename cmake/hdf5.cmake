# parx::hdf5: what a program needs that includes <parx/data/formats/hdf5.hpp>, beside parx::parx or
# parx::header_only. After find_package(HDF5).
if(NOT TARGET parx::hdf5)
  add_library(parx::hdf5 INTERFACE IMPORTED GLOBAL)
  target_link_libraries(parx::hdf5 INTERFACE parx::header_only HDF5::HDF5)
endif()
