// one_thread: a library that multiplies matrices must not start threads that nobody asked for.
//
// Ranks are processes, usually one a core; a BLAS that starts one thread for each core of the host
// in each of them makes everything slower. So where OMP_NUM_THREADS (or the library's own
// variable) says nothing, the libraries are held to one thread. The functions that set this are
// found at run time: they are weak, and null where the program has no such library.
#pragma once

#include <cstdlib>

#include <parx/core/abi.hpp>

extern "C" {
[[gnu::weak]] void openblas_set_num_threads(int count);
[[gnu::weak]] int omp_get_max_threads() noexcept;
[[gnu::weak]] void omp_set_num_threads(int count) noexcept;
}

namespace parx::inline PARX_ABI::detail {

/// Whether the user said how many threads to use. `variable` is the library's own name for that.
[[nodiscard]] inline bool threads_are_chosen(const char* variable) noexcept {
  return std::getenv("OMP_NUM_THREADS") != nullptr || std::getenv(variable) != nullptr;
}

/// OpenBLAS keeps the number for the whole process; MKL and BLIS use OpenMP's, see below.
inline void hold_openblas_to_one_thread() noexcept {
  [[maybe_unused]] static const bool done = [] {
    if (openblas_set_num_threads != nullptr && !threads_are_chosen("OPENBLAS_NUM_THREADS")) {
      openblas_set_num_threads(1);
    }
    return true;
  }();
}

/// While it lives, OpenMP regions that this thread opens have one thread. OpenMP's number belongs
/// to the calling thread and to the rest of the program as well, hence it is put back.
class one_openmp_thread {
 public:
  one_openmp_thread() noexcept {
    static const bool held = omp_set_num_threads != nullptr && omp_get_max_threads != nullptr &&
                             !threads_are_chosen("OMP_NUM_THREADS");
    if (!held) return;
    before_ = omp_get_max_threads();
    if (before_ > 1) omp_set_num_threads(1);
  }
  ~one_openmp_thread() {
    if (before_ > 1) omp_set_num_threads(before_);
  }
  one_openmp_thread(const one_openmp_thread&) = delete;
  one_openmp_thread& operator=(const one_openmp_thread&) = delete;

 private:
  int before_ = 1;
};

}  // namespace parx::detail
