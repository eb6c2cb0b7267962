#include <parx/data/formats/hdf5.hpp>

#include <random>

#include <boost/test/unit_test.hpp>

#include <data/support.hpp>
#include <messages.hpp>

#ifdef PARX_HAS_HDF5

using namespace parx;
using parx_test::mentions;
using parx_test::message_of;

namespace {

/// An HDF5 file with x, a 4 x 3 array of doubles in a group, and text, which is none of numbers.
std::string sample_file(const parx_test::scratch_folder& folder) {
  const std::string path = folder.file("a.h5");
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t group = H5Gcreate2(file, "train", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t extents[] = {4, 3};
  double values[12];
  for (int i = 0; i < 12; ++i) values[i] = i + 0.5;
  const hid_t space = H5Screate_simple(2, extents, nullptr);
  const hid_t array =
      H5Dcreate2(group, "x", H5T_IEEE_F64BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dwrite(array, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  const hid_t type = H5Tcopy(H5T_C_S1);
  const hid_t scalar = H5Screate(H5S_SCALAR);
  const hid_t text = H5Dcreate2(file, "text", type, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dclose(text);
  H5Sclose(scalar);
  H5Tclose(type);
  H5Dclose(array);
  H5Sclose(space);
  H5Gclose(group);
  H5Fclose(file);
  return path;
}

}  // namespace

BOOST_AUTO_TEST_CASE(arrays_are_read_whole_or_by_rows_in_the_type_asked_for) {
  const parx_test::scratch_folder folder;
  const data::hdf5_file file(sample_file(folder));
  BOOST_TEST((file.shape("train/x") == shape{4, 3}));
  const auto whole = file.read<float>("train/x");
  BOOST_TEST(whole.at(3, 2) == 11.5F);
  const auto rows = file.read_rows<std::int64_t>("train/x", 1, 2);
  BOOST_TEST((rows.shape() == shape{2, 3}));
  BOOST_TEST(rows.at(0, 0) == 3);
  BOOST_CHECK_THROW((void)file.read_rows<float>("train/x", 3, 2), usage_error);
  BOOST_TEST(mentions(message_of([&] { (void)file.read<float>("train/y"); }), "a.h5",
                      "no array \"train/y\""));
  BOOST_TEST(
      mentions(message_of([&] { (void)file.read<float>("text"); }), "not an array of numbers"));
  BOOST_TEST(
      mentions(message_of([&] { data::hdf5_file other("/nonexistent.h5"); }), "/nonexistent.h5"));
  BOOST_TEST(mentions(message_of([&] { data::hdf5_file other(folder.write("x.h5", "hello")); }),
                      "x.h5", "cannot open"));
}

BOOST_AUTO_TEST_CASE(a_file_that_was_cut_short_is_refused) {
  const parx_test::scratch_folder folder;
  const std::string whole = parx_test::read_file(sample_file(folder));
  for (std::size_t length = 0; length < whole.size(); length += 97) {
    const auto path = folder.write("cut.h5", std::string_view(whole).substr(0, length));
    BOOST_CHECK_THROW((void)data::hdf5_file(path).read<float>("train/x"), error);
  }
}

#else

BOOST_AUTO_TEST_CASE(hdf5_is_not_there) {
  fmt::print(
      "SKIPPED: compiled without HDF5; install libhdf5-dev and configure with -DPARX_HDF5=ON\n");
}

#endif
