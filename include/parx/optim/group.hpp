// parameter_group: parameters that share their options, as PyTorch's param_groups.
//
//   optim::adamw opt{{{body.parameters(), {.lr = 1e-5}}, {head.parameters(), {.lr = 1e-3}}}};
//   optim::adamw opt{optim::decay_groups(model.parameters(), optim::adamw_options{.lr = 3e-4})};
//
// decay_groups does what Hugging Face's Trainer does: weight decay for matrices, none for biases
// and norms, by what their layers say. A parameter that is in no group is not updated.
// A group of a rank's share of a model (a pipeline's stage) may be empty, so that a group has the
// same number on all ranks.
// set_lr gives all groups one rate; for different rates set each: opt.options(1).lr =
// schedule.at(step).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/parameter_list.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/target.hpp>

namespace parx::inline PARX_ABI::optim {

template <typename T, typename Options>
struct parameter_group {
  parameter_group(std::vector<target<T>> its_targets,  // NOLINT(google-explicit-constructor)
                  Options its_options = {})
      : targets(std::move(its_targets)), options(its_options) {}
  parameter_group(const std::vector<parameter<T>>& all,  // NOLINT(google-explicit-constructor)
                  Options its_options = {})
      : parameter_group(targets_of(all), its_options) {}
  parameter_group(const parameter_list<T>& all,  // NOLINT(google-explicit-constructor)
                  Options its_options = {})
      : parameter_group(targets_of(all), its_options) {
    site = all.site;
    scope = all.scope;
    if (!all.axes.empty()) axes = {all.axes};
  }
  parameter_group(const target_list<T>& all,  // NOLINT(google-explicit-constructor)
                  Options its_options = {})
      : parameter_group(static_cast<const std::vector<target<T>>&>(all), its_options) {
    axes = all.axes;
    if (!axes.empty()) scope = parameter_scope::share;
  }

  std::vector<target<T>> targets;
  Options options;
  call_site site{};  ///< where the parameters were asked for, if that is known
  parameter_scope scope = parameter_scope::model;
  std::vector<share_axes> axes{};  ///< of the model of which the parameters are a share
};

/// Whether weight decay is meant for a parameter: not for one that its layer has exempted
/// (parameter::exempt_from_decay: biases of layers, all of a norm), and not for a member "bias" or
/// "..._bias" of a layer of your own.
template <typename T>
[[nodiscard]] bool is_meant_to_decay(const parameter<T>& each) {
  const std::string_view path = each.name();
  const std::string_view member = path.substr(path.rfind('.') + 1);
  return !each.is_exempt_from_decay() && member != "bias" && !member.ends_with("_bias");
}

namespace detail {

/// As decay_groups, by decays(parameter).
template <typename T, typename Options, typename Predicate>
[[nodiscard]] std::vector<parameter_group<T, Options>> decay_groups_by(
    const std::vector<parameter<T>>& parameters, Options options, Predicate decays) {
  std::vector<target<T>> decayed, others;
  for (const parameter<T>& each : parameters) (decays(each) ? decayed : others).push_back(each);
  std::vector<parameter_group<T, Options>> groups;
  if (!decayed.empty()) groups.emplace_back(std::move(decayed), options);
  options.weight_decay = 0;
  if (!others.empty()) groups.emplace_back(std::move(others), options);
  return groups;
}
template <typename T, typename Options, typename Predicate>
[[nodiscard]] std::vector<parameter_group<T, Options>> decay_groups_by(
    const parameter_list<T>& parameters, Options options, Predicate decays) {
  parameter_list<T> decayed(parameters.site, parameters.scope);
  decayed.axes = parameters.axes;
  parameter_list<T> others = decayed;
  for (const parameter<T>& each : parameters) (decays(each) ? decayed : others).push_back(each);
  const bool keeps_empty = parameters.scope == parameter_scope::share || parameters.empty();
  std::vector<parameter_group<T, Options>> groups;
  if (keeps_empty || !decayed.empty()) groups.emplace_back(decayed, options);
  options.weight_decay = 0;
  if (keeps_empty || !others.empty()) groups.emplace_back(others, options);
  return groups;
}

}  // namespace detail

/// Two groups with the same options, except no weight decay for parameters that is_meant_to_decay()
/// refuses, or whose name `without_decay(name)` accepts. An empty group is left out, unless it is
/// of a share of a model.
template <typename List, typename Options>
[[nodiscard]] auto decay_groups(const List& parameters, Options options) {
  return detail::decay_groups_by(parameters, options,
                                 [](const auto& each) { return is_meant_to_decay(each); });
}
template <typename List, typename Options, typename Predicate>
[[nodiscard]] auto decay_groups(const List& parameters, Options options, Predicate without_decay) {
  return detail::decay_groups_by(parameters, options,
                                 [&](const auto& each) { return !without_decay(each.name()); });
}

}  // namespace parx::inline PARX_ABI::optim
