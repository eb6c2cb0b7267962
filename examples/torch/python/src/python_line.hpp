// python_line: the line of the user's Python program from which PyTorch was called, for messages
// that all ranks get: a rank's traceback shows the line of that rank alone.
#pragma once

#include <torch/csrc/utils/pybind.h>
#undef CHECK

#include <frameobject.h>

#include <parx/core/source.hpp>

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace parx_torch {

/// Where PyTorch's own Python is, with a '/' at its end. Set when the module is imported.
inline std::string torch_folder;

/// Of the innermost frame that is neither PyTorch's nor the creator's of groups; no line in a
/// thread that Python does not know. Costs 0.15 us: takes Python's lock, reads one frame for each
/// function of PyTorch's in between, and remembers the lines, which Python counts from the
/// beginning of a function.
inline parx::call_site python_line() {
  if (PyGILState_GetThisThreadState() == nullptr) return {};
  struct place {
    PyCodeObject* code;  // kept alive by the map
    int instruction;
    bool operator==(const place&) const = default;
  };
  struct hash_of_place {
    std::size_t operator()(const place& at) const noexcept {
      return std::hash<const void*>()(at.code) * 31 + static_cast<std::size_t>(at.instruction);
    }
  };
  constexpr std::size_t most = 4096;  // for programs that make functions without end
  // Not destroyed, since threads may still be here when the program ends.
  static auto& mutex = *new std::mutex;
  static auto& lines = *new std::unordered_map<place, parx::call_site, hash_of_place>;
  static auto& files = *new std::unordered_set<std::string>;
  const auto line_of = [](PyFrameObject* frame, PyCodeObject* code) -> parx::call_site {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(code->co_filename, &size);
    if (text == nullptr) PyErr_Clear();
    const std::string_view name(text != nullptr ? text : "", static_cast<std::size_t>(size));
    if (name.starts_with(torch_folder) || name.ends_with("/parx_torch/__init__.py")) return {};
    return {files.emplace(name).first->c_str(), PyFrame_GetLineNumber(frame)};
  };

  const pybind11::gil_scoped_acquire python;
  const std::lock_guard lock(mutex);
  auto frame = pybind11::reinterpret_borrow<pybind11::object>(
      reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    auto* const now = reinterpret_cast<PyFrameObject*>(frame.ptr());
    PyCodeObject* const code = PyFrame_GetCode(now);
#if PY_VERSION_HEX >= 0x030B0000
    const place at{code, PyFrame_GetLasti(now)};
#else
    const place at{code, now->f_lasti};
#endif
    const auto known = lines.find(at);
    const parx::call_site site = known != lines.end() ? known->second : line_of(now, code);
    if (known != lines.end() || lines.size() >= most) Py_DECREF(code);
    else lines.emplace(at, site);
    if (site.line > 0) return site;
    frame = pybind11::reinterpret_steal<pybind11::object>(
        reinterpret_cast<PyObject*>(PyFrame_GetBack(now)));
  }
  return {};
}

}  // namespace parx_torch
