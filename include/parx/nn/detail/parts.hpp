// The visits that modules make to their own parts: initial values, random numbers, modes, names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/anomaly.hpp>
#include <parx/core/check.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/nn/detail/module_visitor.hpp>

namespace parx::inline PARX_ABI::nn::detail {

/// Which parameters and random layers are filled and seeded: all, or those that were not before.
enum class fill { all, missing };

/// Names parameters by their paths and fills those whose path `wanted` accepts (empty: all). Throws
/// usage_error where two parameters have one path.
struct initial_values final : module_visitor {
  using filter = std::function<bool(const std::string& path)>;
  initial_values(std::uint64_t from, fill parts, filter only = {})
      : seed(from), which(parts), wanted(std::move(only)) {}
  void on_parameter(module_state&, const std::string& path, const any_parameter& parameter,
                    const initializer& start) override {
    require(paths.insert(path).second,
            "two parameters of the model are called \"{}\": members() gives each member a name of "
            "its own, visit(\"out\", out)",
            path);
    parameter.rename(path);
    if (wanted && !wanted(path)) return;
    if (which == fill::all || !parameter.has_values()) parameter.fill(start, seed, path);
  }
  std::uint64_t seed;
  fill which;
  filter wanted;
  std::set<std::string> paths;
};

/// After initial_values: marks the modules as ready and seeds the random layers.
struct readiness final : module_visitor {
  readiness(std::uint64_t from, fill parts) : seed(from), which(parts) {}
  void on_module(const std::string& path, const module_view& part) override {
    const bool was_ready = std::exchange(ready(part.module), true);
    if (part.noise != nullptr && (which == fill::all || !was_ready)) {
      part.noise->seed_noise(seed, path);
    }
  }
  std::uint64_t seed;
  fill which;
};

struct noise_seeding final : module_visitor {
  explicit noise_seeding(std::uint64_t from) : seed(from) {}
  void on_module(const std::string& path, const module_view& part) override {
    if (part.noise != nullptr) part.noise->seed_noise(seed, path);
  }
  std::uint64_t seed;
};

struct replica_setting final : module_visitor {
  explicit replica_setting(std::uint64_t number) : replica(number) {}
  void on_module(const std::string&, const module_view& part) override {
    if (part.noise != nullptr) part.noise->set_noise_replica(replica);
  }
  std::uint64_t replica;
};

/// The noise of a step of several replicas that are computed in turns.
struct replicas_beginning final : module_visitor {
  void on_module(const std::string&, const module_view& part) override {
    if (part.noise != nullptr) part.noise->begin_noise_replicas();
  }
};
struct replica_turn final : module_visitor {
  explicit replica_turn(std::uint64_t number) : replica(number) {}
  void on_module(const std::string&, const module_view& part) override {
    if (part.noise != nullptr) part.noise->next_noise_replica(replica);
  }
  std::uint64_t replica;
};
struct replicas_ending final : module_visitor {
  void on_module(const std::string&, const module_view& part) override {
    if (part.noise != nullptr) part.noise->end_noise_replicas();
  }
};

struct training_setting final : module_visitor {
  explicit training_setting(bool is_on) : on(is_on) {}
  void on_module(const std::string&, const module_view& part) override {
    training(part.module) = on;
  }
  bool on;
};

struct module_naming final : module_visitor {
  explicit module_naming(parx::anomaly_watch& names) : watch(names) {}
  void on_module(const std::string& path, const module_view& part) override {
    watch.name_module(&part.module, path);
  }
  parx::anomaly_watch& watch;
};

/// Calls one member function of each parameter.
struct parameter_calls final : module_visitor {
  explicit parameter_calls(void (any_parameter::*what)() const) : function(what) {}
  void on_parameter(module_state&, const std::string&, const any_parameter& parameter,
                    const initializer&) override {
    (parameter.*function)();
  }
  void (any_parameter::*function)() const;
};

struct parameter_counting final : module_visitor {
  void on_parameter(module_state&, const std::string&, const any_parameter& parameter,
                    const initializer&) override {
    count += parameter.whole_size();
  }
  std::size_t count = 0;
};

/// Calls on_module for each module.
struct module_visits final : module_visitor {
  using function = function_ref<void(const std::string& path, const module_view& part)>;
  explicit module_visits(function what) : call(what) {}
  void on_module(const std::string& path, const module_view& part) override { call(path, part); }
  function call;
};

/// Calls a function for each parameter, or for each path of each parameter.
struct parameter_visits final : module_visitor {
  using function = function_ref<void(const std::string& path, const any_parameter& held,
                                     const initializer& start)>;
  explicit parameter_visits(function what) : call(what) {}
  void on_parameter(module_state&, const std::string& path, const any_parameter& held,
                    const initializer& start) override {
    call(path, held, start);
  }
  function call;
};
/// The same for buffers.
struct buffer_visits final : module_visitor {
  using function = function_ref<void(const std::string& path, const any_handle& buffer)>;
  explicit buffer_visits(function what) : call(what) {}
  void on_buffer(const std::string& path, const any_handle& buffer) override { call(path, buffer); }
  function call;
};

/// On a walk over all names: the first path of a parameter is its name, others are other names.
class names_in_files final : public module_visitor {
 public:
  void on_parameter(module_state&, const std::string& path, const any_parameter& held,
                    const initializer&) override {
    if (!names_.try_emplace(held.node(), path).second) on_other_name(path, held);
  }
  void on_other_name(const std::string& path, const any_parameter& held) override {
    others_.emplace_back(held.node(), path);
  }
  void on_constant_name(const std::string& path) override { constants_.push_back(path); }
  void on_optional_prefix(const std::string& prefix, std::size_t kept) override {
    prefixes_.emplace_back(prefix, kept);
  }

  void for_each_other(
      const std::function<void(const std::string&, const std::string&)>& use) const {
    for (const auto& [parameter, name] : names_) {
      for_each_shorter(name, [&, &of = name](const std::string& shorter) { use(shorter, of); });
    }
    for (const auto& [parameter, other] : others_) {
      const auto name = names_.find(parameter);
      if (name == names_.end()) continue;
      use(other, name->second);
      for_each_shorter(other, [&](const std::string& shorter) { use(shorter, name->second); });
    }
  }
  void for_each_constant(const std::function<void(const std::string&)>& use) const {
    for (const std::string& name : constants_) {
      use(name);
      for_each_shorter(name, use);
    }
  }

 private:
  template <typename Use>
  void for_each_shorter(const std::string& name, const Use& use) const {
    for (const auto& [prefix, kept] : prefixes_)
      if (name.starts_with(prefix)) use(name.substr(0, kept) + name.substr(prefix.size()));
  }

  std::map<const void*, std::string> names_;
  std::vector<std::pair<const void*, std::string>> others_;
  std::vector<std::string> constants_;
  std::vector<std::pair<std::string, std::size_t>> prefixes_;
};

}  // namespace parx::nn::detail
