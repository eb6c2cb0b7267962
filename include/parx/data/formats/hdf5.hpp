// hdf5_file: reads arrays of numbers from an HDF5 file, whole or some rows at a time.
//
//   parx::data::hdf5_file file("train.h5");
//   parx::data::tensor_dataset set(file.read<float>("x"), file.read<std::int64_t>("y"));
//
// Optional: this header is empty unless <hdf5.h> is found; link parx::hdf5 (CMake option
// PARX_HDF5), or give HDF5's own flags. Numbers are converted to the requested type. The HDF5
// library of the distributions is not thread-safe, so one lock guards all calls of the process.
// Source: the HDF5 C API, docs.hdfgroup.org/hdf5/v1_10.
#pragma once

#if __has_include(<hdf5.h>)
#define PARX_HAS_HDF5 1

#include <hdf5.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::data {

class hdf5_file {
 public:
  /// Opens `path` to be read. Throws errc::io when there is no such file, errc::bad_data when it is
  /// not HDF5.
  explicit hdf5_file(std::string path) : path_(std::move(path)) {
    const std::lock_guard lock(library());
    file_ = handle(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
    if (!file_) fail(H5Fis_hdf5(path_.c_str()) < 0 ? errc::io : errc::bad_data, "cannot open it");
  }
  ~hdf5_file() {
    const std::lock_guard lock(library());
    file_ = {};
  }
  hdf5_file(const hdf5_file&) = delete;
  hdf5_file& operator=(const hdf5_file&) = delete;

  /// The extents of the array called `name` ("x", "group/x"). Throws errc::bad_data when there is
  /// none.
  [[nodiscard]] parx::shape shape(const std::string& name) const {
    const std::lock_guard lock(library());
    return shape_of(open(name), name);
  }

  /// The whole array. Throws errc::bad_data when there is none, it is not of numbers, or damaged.
  template <typename T>
  [[nodiscard]] tensor<T> read(const std::string& name) const {
    const std::lock_guard lock(library());
    const array_handle array = open(name);
    auto result = tensor<T>::empty(checked_shape(array, name, sizeof(T)));
    if (result.size() > 0 &&
        H5Dread(array.data.get(), native<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, result.data()) < 0)
      fail(errc::bad_data, formatted("cannot read \"{}\"", name));
    return result;
  }

  /// The rows [begin, begin + count) of the array's first axis. Throws usage_error when they do not
  /// exist, and as read() does.
  template <typename T>
  [[nodiscard]] tensor<T> read_rows(const std::string& name, std::size_t begin,
                                    std::size_t count) const {
    const std::lock_guard lock(library());
    const array_handle array = open(name);
    parx::shape extents = shape_of(array, name);
    require(extents.rank() > 0 && begin <= extents[0] && count <= extents[0] - begin,
            "hdf5_file: rows {} to {} of \"{}\", which has the shape {}", begin, begin + count,
            name, to_string(extents));
    extents[0] = count;
    check_size(extents, name, sizeof(T));
    auto result = tensor<T>::empty(extents);
    if (result.size() == 0) return result;
    std::vector<hsize_t> start(extents.rank(), 0);
    const std::vector<hsize_t> size(extents.begin(), extents.end());
    start[0] = begin;
    const handle memory(H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr),
                        H5Sclose);
    if (!memory ||
        H5Sselect_hyperslab(array.space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(),
                            nullptr) < 0 ||
        H5Dread(array.data.get(), native<T>(), memory.get(), array.space.get(), H5P_DEFAULT,
                result.data()) < 0)
      fail(errc::bad_data,
           formatted("cannot read rows {} to {} of \"{}\"", begin, begin + count, name));
    return result;
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  class handle {
   public:
    handle() = default;
    handle(hid_t id, herr_t (*close)(hid_t)) noexcept : id_(id), close_(close) {}
    handle(handle&& other) noexcept
        : id_(std::exchange(other.id_, hid_t{-1})), close_(other.close_) {}
    handle& operator=(handle&& other) noexcept {
      std::swap(id_, other.id_);
      std::swap(close_, other.close_);
      return *this;
    }
    ~handle() {
      if (id_ >= 0) close_(id_);
    }
    [[nodiscard]] hid_t get() const noexcept { return id_; }
    explicit operator bool() const noexcept { return id_ >= 0; }

   private:
    hid_t id_ = -1;
    herr_t (*close_)(hid_t) = nullptr;
  };
  struct array_handle {
    handle data;
    handle space;
  };

  /// The lock of the library; the first call also stops HDF5 from printing errors.
  static std::mutex& library() {
    static std::mutex mutex;
    static const herr_t silent = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    static_cast<void>(silent);
    return mutex;
  }

  template <typename T>
  static hid_t native() {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    if constexpr (std::is_same_v<T, float>) {
      return H5T_NATIVE_FLOAT;
    } else if constexpr (std::is_same_v<T, double>) {
      return H5T_NATIVE_DOUBLE;
    } else if constexpr (std::is_signed_v<T>) {
      return sizeof(T) == 1   ? H5T_NATIVE_INT8
             : sizeof(T) == 2 ? H5T_NATIVE_INT16
             : sizeof(T) == 4 ? H5T_NATIVE_INT32
                              : H5T_NATIVE_INT64;
    } else {
      return sizeof(T) == 1   ? H5T_NATIVE_UINT8
             : sizeof(T) == 2 ? H5T_NATIVE_UINT16
             : sizeof(T) == 4 ? H5T_NATIVE_UINT32
                              : H5T_NATIVE_UINT64;
    }
  }

  [[nodiscard]] array_handle open(const std::string& name) const {
    array_handle array;
    array.data = handle(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    if (!array.data) fail(errc::bad_data, formatted("there is no array \"{}\"", name));
    array.space = handle(H5Dget_space(array.data.get()), H5Sclose);
    const handle type(H5Dget_type(array.data.get()), H5Tclose);
    if (!array.space || !type)
      fail(errc::bad_data, formatted("\"{}\" has no readable type", name));
    const H5T_class_t kind = H5Tget_class(type.get());
    if (kind != H5T_INTEGER && kind != H5T_FLOAT)
      fail(errc::bad_data, formatted("\"{}\" is not an array of numbers", name));
    return array;
  }

  [[nodiscard]] parx::shape shape_of(const array_handle& array, const std::string& name) const {
    std::array<hsize_t, H5S_MAX_RANK> extents{};
    const int rank = H5Sget_simple_extent_dims(array.space.get(), extents.data(), nullptr);
    if (rank < 0 || static_cast<std::size_t>(rank) > max_rank)
      fail(errc::bad_data,
           formatted("\"{}\" has {} axes; a tensor has at most {}", name, rank, max_rank));
    parx::shape result;
    for (int i = 0; i < rank; ++i)
      result.push_back(static_cast<std::size_t>(extents[static_cast<std::size_t>(i)]));
    return result;
  }
  [[nodiscard]] parx::shape checked_shape(const array_handle& array, const std::string& name,
                                          std::size_t width) const {
    parx::shape result = shape_of(array, name);
    check_size(result, name, width);
    return result;
  }
  /// A damaged header can claim any extent; refuses sizes that no machine can hold.
  void check_size(const parx::shape& extents, const std::string& name, std::size_t width) const {
    std::uint64_t bytes = width;
    for (const std::size_t extent : extents) {
      if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > std::uint64_t{1} << 40U)
        fail(errc::bad_data,
             formatted("\"{}\" of shape {} is larger than 1 TiB; read some rows at a time", name,
                       to_string(extents)));
    }
  }

  [[noreturn]] void fail(errc code, const std::string& what) const {
    std::string reason;
    H5Ewalk2(
        H5E_DEFAULT, H5E_WALK_UPWARD,
        [](unsigned /*number*/, const H5E_error2_t* each, void* text) {
          auto& first = *static_cast<std::string*>(text);
          if (first.empty() && each->desc != nullptr) first = each->desc;
          return herr_t{0};
        },
        &reason);
    throw_error(code, "\"{}\": {}{}{}.", path_, what, reason.empty() ? "" : ": ", reason);
  }

  std::string path_;
  handle file_;
};

}  // namespace parx::data

#endif
