# parx::hdf5: parx::parx with what parx/data/formats/hdf5.hpp needs. After find_package(HDF5).
if(NOT TARGET parx::hdf5)
  add_library(parx::hdf5 INTERFACE IMPORTED GLOBAL)
  target_link_libraries(parx::hdf5 INTERFACE parx::parx HDF5::HDF5)
endif()
