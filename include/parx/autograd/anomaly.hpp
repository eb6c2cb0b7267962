// detect_anomaly: a scope in which the first operation of this thread that makes an Inf or NaN out
// of finite numbers throws an error that names the operation and its module.
//
//   const parx::detect_anomaly scope("step 12, rank 3");
//   criterion(model(x), y).backward();
//
// Both passes are checked: results in the forward pass, contributions to gradients in backward,
// which names the module of the forward pass. Every value is checked, so use it only to find
// errors; without a scope it costs nothing. With float16 and a grad_scaler end the scope before
// backward, or the steps that the scaler would skip throw; the trainer does so. Source: PyTorch's
// torch.autograd.detect_anomaly, which checks for NaN in backward.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include <parx/autograd/detail/node.hpp>

namespace parx::inline PARX_ABI {

/// Thrown within a detect_anomaly scope.
class anomaly_error : public std::runtime_error {
 public:
  anomaly_error(const std::string& what, std::string operation, std::string module)
      : runtime_error(what), operation_(std::move(operation)), module_(std::move(module)) {}
  /// "linear"
  [[nodiscard]] const std::string& operation() const noexcept { return operation_; }
  /// "encoder.layer.1.attention"; empty outside of modules and in the outermost one.
  [[nodiscard]] const std::string& module() const noexcept { return module_; }

 private:
  std::string operation_;
  std::string module_;
};

namespace detail {

/// "linear" for "parx::linear<float>(parx::variable<float> const&, ...)::{lambda(...)#1}": the
/// first function of parx whose template arguments, if any, are plain types.
[[nodiscard]] std::string operation_name(const char* mangled);

}  // namespace detail

/// The state of a scope: which modules are running, and which operation made each node.
class anomaly_watch {
 public:
  explicit anomaly_watch(std::string where) : where_(std::move(where)) {}

  /// That of this thread's innermost scope, null without one.
  [[nodiscard]] static anomaly_watch*& current() noexcept;

  /// After an operation on finite inputs with this result; throws anomaly_error.
  template <typename T>
  void computed(const std::type_info& backward, const tensor<T>& result) {
    if (detail::all_finite(result)) return;
    report("result", detail::operation_name(backward.name()), module());
  }
  void recorded(const std::type_info& backward, const detail::node_base& made) {
    origins_[made.sequence] = {&backward, module()};
  }
  /// After a node has added to the gradients of its inputs; throws anomaly_error.
  void ran(const detail::node_base& node);
  /// A node that has run for the last time.
  void forget(const detail::node_base& node) { origins_.erase(node.sequence); }

  /// The path of the module that is running.
  [[nodiscard]] std::string module() const { return running_.empty() ? "" : running_.back(); }
  [[nodiscard]] bool in_module() const noexcept { return !running_.empty(); }
  void name_module(const void* address, const std::string& path) { paths_[address] = path; }
  /// A module begins to run, known by its address; one that members() hides gets its parent's path.
  void enter(const void* address);
  void enter_path(std::string path);
  void leave() noexcept { running_.pop_back(); }

 private:
  struct maker {
    const std::type_info* backward = nullptr;
    std::string module = {};
  };

  [[noreturn]] void report(const std::string& what, std::string operation,
                           std::string module) const;

  std::string where_;
  std::vector<std::string> running_;
  std::unordered_map<const void*, std::string> paths_;
  std::unordered_map<std::uint64_t, maker> origins_;  // by a node's sequence number
};

/// A scope in which a module runs.
class watched_module {
 public:
  watched_module(anomaly_watch& watch, const void* address) : watch_(watch) {
    watch.enter(address);
  }
  watched_module(anomaly_watch& watch, std::string path) : watch_(watch) {
    watch.enter_path(std::move(path));
  }
  ~watched_module() { watch_.leave(); }
  watched_module(const watched_module&) = delete;
  watched_module& operator=(const watched_module&) = delete;

 private:
  anomaly_watch& watch_;
};

class detect_anomaly {
 public:
  /// `where` is added to the message: the step, the rank.
  explicit detect_anomaly(std::string where = {})
      : watch_(std::move(where)), outer_(std::exchange(anomaly_watch::current(), &watch_)) {}
  ~detect_anomaly() { anomaly_watch::current() = outer_; }
  detect_anomaly(const detect_anomaly&) = delete;
  detect_anomaly& operator=(const detect_anomaly&) = delete;

 private:
  anomaly_watch watch_;
  anomaly_watch* outer_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/autograd/detail/anomaly_impl.hpp>
#endif
