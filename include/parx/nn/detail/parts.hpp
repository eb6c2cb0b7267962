// part_visitor: a type-erased visitor of the modules and parameters of a model.
//
// module::walk_parts instantiates one walk per model, which calls the virtual functions here. The
// visitors below are therefore compiled once, not once for each model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/detail/module_state.hpp>
#include <parx/nn/init.hpp>
#include <parx/nn/random_layer.hpp>

namespace parx::inline PARX_ABI::nn::detail {

/// A parameter of any element type.
class any_parameter {
 public:
  virtual void rename(const std::string& path) const = 0;
  [[nodiscard]] virtual bool has_values() const = 0;
  virtual void fill(const initializer& start, std::uint64_t seed, std::string_view path) const = 0;
  virtual void freeze() const = 0;
  virtual void unfreeze() const = 0;
  virtual void zero_grad() const = 0;
  [[nodiscard]] virtual std::size_t whole_size() const = 0;

 protected:
  ~any_parameter() = default;
};

template <typename T>
class parameter_of final : public any_parameter {
 public:
  explicit parameter_of(const parameter<T>& held) noexcept : held_(held) {}

  void rename(const std::string& path) const override { held_.rename(path); }
  [[nodiscard]] bool has_values() const override { return held_.has_values(); }
  void fill(const initializer& start, std::uint64_t seed, std::string_view path) const override {
    require(start.kind != initializer::distribution::keep || held_.has_values(),
            "parameter \"{}\" has neither values nor an initializer: name one in members(), as in "
            "visit(\"{}\", member, parx::nn::init::normal(0, 0.02))",
            path, path.substr(path.rfind('.') + 1));
    start.fill(held_.allocate(), seed, path, held_.spec());
  }
  void freeze() const override { held_.freeze(); }
  void unfreeze() const override { held_.unfreeze(); }
  void zero_grad() const override { held_.zero_grad(); }
  [[nodiscard]] std::size_t whole_size() const override { return held_.global_shape().size(); }

 private:
  const parameter<T>& held_;
};

class part_visitor {
 public:
  /// `noise` is the module if it is a random_layer, else null.
  virtual void on_module(const std::string& /*path*/, module_state& /*module*/,
                         random_layer* /*noise*/) {}
  virtual void on_parameter(module_state& /*owner*/, const std::string& /*path*/,
                            const any_parameter& /*parameter*/, const initializer& /*start*/) {}

 protected:
  ~part_visitor() = default;

  [[nodiscard]] static bool& ready(module_state& module) noexcept { return module.ready_; }
  [[nodiscard]] static bool& training(module_state& module) noexcept { return module.training_; }
};

/// Which parameters and random layers are filled and seeded: all, or those that were not before.
enum class fill { all, missing };

/// Names parameters by their paths and fills those whose path `wanted` accepts (empty: all).
struct initial_values final : part_visitor {
  using filter = std::function<bool(const std::string& path)>;
  initial_values(std::uint64_t from, fill parts, filter only = {})
      : seed(from), which(parts), wanted(std::move(only)) {}
  void on_parameter(module_state&, const std::string& path, const any_parameter& parameter,
                    const initializer& start) override {
    parameter.rename(path);
    if (wanted && !wanted(path)) return;
    if (which == fill::all || !parameter.has_values()) parameter.fill(start, seed, path);
  }
  std::uint64_t seed;
  fill which;
  filter wanted;
};

/// After initial_values: marks the modules as ready and seeds the random layers.
struct readiness final : part_visitor {
  readiness(std::uint64_t from, fill parts) : seed(from), which(parts) {}
  void on_module(const std::string& path, module_state& module, random_layer* noise) override {
    const bool was_ready = std::exchange(ready(module), true);
    if (noise != nullptr && (which == fill::all || !was_ready)) noise->seed_noise(seed, path);
  }
  std::uint64_t seed;
  fill which;
};

struct noise_seeding final : part_visitor {
  explicit noise_seeding(std::uint64_t from) : seed(from) {}
  void on_module(const std::string& path, module_state&, random_layer* noise) override {
    if (noise != nullptr) noise->seed_noise(seed, path);
  }
  std::uint64_t seed;
};

struct replica_setting final : part_visitor {
  explicit replica_setting(std::uint64_t number) : replica(number) {}
  void on_module(const std::string&, module_state&, random_layer* noise) override {
    if (noise != nullptr) noise->set_noise_replica(replica);
  }
  std::uint64_t replica;
};

/// The noise of a step of several replicas: marks its beginning, or goes back to it for a replica.
struct noise_marking final : part_visitor {
  void on_module(const std::string&, module_state&, random_layer* noise) override {
    if (noise != nullptr) noise->mark_noise();
  }
};
struct noise_rewinding final : part_visitor {
  explicit noise_rewinding(std::uint64_t number) : replica(number) {}
  void on_module(const std::string&, module_state&, random_layer* noise) override {
    if (noise == nullptr) return;
    noise->rewind_noise();
    noise->set_noise_replica(replica);
  }
  std::uint64_t replica;
};

struct training_setting final : part_visitor {
  explicit training_setting(bool is_on) : on(is_on) {}
  void on_module(const std::string&, module_state& module, random_layer*) override {
    training(module) = on;
  }
  bool on;
};

/// Saves which modules are in training mode; training_restoring restores it.
struct training_modes final : part_visitor {
  void on_module(const std::string&, module_state& module, random_layer*) override {
    modes.push_back(training(module));
  }
  std::vector<bool> modes;
};
struct training_restoring final : part_visitor {
  explicit training_restoring(const std::vector<bool>& modes) : next(modes.begin()) {}
  void on_module(const std::string&, module_state& module, random_layer*) override {
    training(module) = *next++;
  }
  std::vector<bool>::const_iterator next;
};

struct module_naming final : part_visitor {
  explicit module_naming(parx::detail::anomaly_watch& names) : watch(names) {}
  void on_module(const std::string& path, module_state& module, random_layer*) override {
    watch.name_module(&module, path);
  }
  parx::detail::anomaly_watch& watch;
};

/// Calls one member function of each parameter.
struct parameter_calls final : part_visitor {
  explicit parameter_calls(void (any_parameter::*what)() const) : function(what) {}
  void on_parameter(module_state&, const std::string&, const any_parameter& parameter,
                    const initializer&) override {
    (parameter.*function)();
  }
  void (any_parameter::*function)() const;
};

struct parameter_counting final : part_visitor {
  void on_parameter(module_state&, const std::string&, const any_parameter& parameter,
                    const initializer&) override {
    count += parameter.whole_size();
  }
  std::size_t count = 0;
};

/// The paths of parameters (nodes), as a walk meets them: the first is the name, others are other
/// names.
class other_names {
 public:
  void add(const void* parameter, const std::string& path) {
    if (!names_.try_emplace(parameter, path).second) add_other(parameter, path);
  }
  void add_other(const void* parameter, const std::string& path) {
    others_.emplace_back(parameter, path);
  }
  void for_each(const std::function<void(const std::string&, const std::string&)>& use) const {
    for (const auto& [parameter, other] : others_) {
      if (const auto name = names_.find(parameter); name != names_.end()) use(other, name->second);
    }
  }

 private:
  std::map<const void*, std::string> names_;
  std::vector<std::pair<const void*, std::string>> others_;
};

}  // namespace parx::nn::detail
