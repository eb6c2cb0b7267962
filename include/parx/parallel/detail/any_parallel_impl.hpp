// Definitions of any_parallel.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/checkpoint/whole_value.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/log.hpp>
#include <parx/nn/init.hpp>
#include <parx/parallel/any_parallel.hpp>
#include <parx/parallel/detail/agreed_layout.hpp>
#include <parx/parallel/detail/strategy_maker.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
any_parallel<T>::any_parallel(std::unique_ptr<any_model<T>> model, process_group& world,
                              parx::layout how, const parallel_choices& choices, call_site site)
    : layout_(detail::agreed_layout(
          std::move(how), world, [&] { return detail::chosen_layout(*model, world, choices); },
          site)),
      site_(site),
      world_(world),
      whole_(std::move(model)) {
  if (layout_.pp * layout_.tp > 1) mesh_.emplace(world, detail::axes_of(layout_), site);
  detail::strategy_maker<T> maker(*whole_, layout_, world_, mesh_ ? &*mesh_ : nullptr, site_);
  maker.validate();
  maker.agree_on_values();
  cut_ = maker.cut_layers(choices);
  strategy_ = maker.make(choices);
  part_.emplace(*strategy_, *whole_);
  shapes_.emplace(*whole_);
}

template <typename T>
void any_parallel<T>::warn_of_loss(double loss, call_site site) {
  told_of_loss_ = true;
  if (world_.rank() != 0) return;
  logger::instance().write(
      log_level::warn,
      formatted("forward_backward at {}: the loss of call {} is {}, and the gradients of all ranks "
                "will be: the batch has such numbers, or an earlier step has spoiled the "
                "parameters. Lower the learning rate, clip by optim::clip_grad_norm, look for such "
                "numbers in the batch; a parx::detect_anomaly in front of the call names the "
                "operation that made the first",
                site, steps_, std::isnan(loss) ? "nan" : loss > 0 ? "inf" : "-inf"));
}

template <typename T>
void any_parallel<T>::initialize(std::uint64_t seed, call_site site) {
  detail::require_same(world_, "seed", std::to_string(seed), site);
  before_write();
  std::map<std::string, nn::initializer> starts;
  whole_->for_each_parameter_path(
      [&](const std::string& path, auto&, const nn::initializer& start) {
        starts.emplace(path, start);
      });
  strategy().for_each_parameter([&](const std::string& path, parameter<T>& part) {
    starts.at(path).fill(part.value(), seed, path, part.spec());
    part.note_change();
  });
  whole_->reseed(seed);
}

template <typename T>
void any_parallel<T>::for_each_whole_value(
    function_ref<void(const std::string& path, const tensor<T>& whole)> use, call_site site) {
  std::map<std::string, parameter<T>> parts;
  strategy().for_each_parameter([&](const std::string& path, parameter<T>& part) {
    if (copies(path).index == 0) parts.emplace(path, part);
  });
  whole_->for_each_parameter([&](const std::string& path, parameter<T>& shape) {
    const auto part = parts.find(path);
    const parameter<T>* const here = part == parts.end() ? nullptr : &part->second;
    use(path, detail::whole_value(job_group(), shape.global_shape(), here, site));
  });
}

template <typename T>
void any_parallel<T>::unwrap(call_site site) {
  broadcast_buffers(site);
  std::vector<tensor<T>> values;
  for_each_whole_value(
      [&](const std::string&, const tensor<T>& whole) { values.push_back(whole); },
      site);
  strategy_.reset();
  cut_.reset();
  std::size_t next = 0;
  whole_->for_each_parameter([&](const std::string&, parameter<T>& each) {
    each.allocate().copy_from(values[next++]);
    each.note_change();
  });
}

template <typename T>
std::uint64_t any_parallel<T>::values_hash(call_site site) {
  std::uint64_t hash = detail::fnv1a({});
  for_each_whole_value(
      [&](const std::string&, const tensor<T>& whole) { hash = detail::hash_of(whole, hash); },
      site);
  return hash;
}

template <typename T>
bool any_parallel<T>::replicas_equal(call_site site) {
  std::map<std::string, parameter<T>> parts;
  strategy().for_each_parameter(
      [&](const std::string& path, parameter<T>& part) { parts.emplace(path, part); });
  bool is_other = false;
  for_each_whole_value(
      [&](const std::string& path, const tensor<T>& whole) {
        const auto part = parts.find(path);
        if (part == parts.end()) return;
        const T* const here = part->second.value().data();
        part->second.spec().for_each_run([&](const shard_run& run) {
          is_other |= std::memcmp(here + run.local, whole.data() + run.global,
                                  run.length * sizeof(T)) != 0;
        });
      },
      site);
  return !on_any_rank(job_group(), is_other, site);
}

template <typename T>
void any_parallel<T>::regroup(process_group next) {
  require(
      keeps_whole_replicas(),
      "parallel at {}: with the layout \"{}\" a part of the model was on the lost rank alone: "
      "load a checkpoint",
      site_, to_string(layout_));
  parx::layout after = layout_;
  after.dp = next.size();
  validate(after);
  layout_ = std::move(after);
  strategy().regroup(std::move(next));
}

template <typename T>
void any_parallel<T>::require_on_all(const char* what, const std::string& fault, call_site site) {
  const std::uint8_t mine[] = {static_cast<std::uint8_t>(!fault.empty())};
  std::vector<std::uint8_t> all(static_cast<std::size_t>(world_.size()));
  all_gather(world_, mine, all, {}, site);
  const auto first = std::find(all.begin(), all.end(), 1);
  if (first == all.end()) return;
  const int rank = static_cast<int>(first - all.begin());
  std::string told = fault;
  broadcast_object(world_, told, {.root = rank}, site);
  throw_usage("{} at {}: on rank {} {}", what, site, rank, told);
}

template <typename T>
std::string any_parallel<T>::difference_from(const std::map<std::string, parameter<T>>& others) {
  std::string fault;
  std::size_t found = 0;
  (void)strategy();
  whole_->for_each_parameter([&](const std::string& path, parameter<T>& each) {
    const auto other = others.find(path);
    if (other != others.end()) ++found;
    if (!fault.empty()) return;
    const std::string shape = to_string(each.global_shape());
    if (other == others.end()) {
      fault = formatted("the copy has no parameter \"{}\" of {}", path, shape);
    } else if (other->second.shape() != each.global_shape()) {
      fault = formatted("the copy's \"{}\" is {}, and the model's {}", path,
                        to_string(other->second.shape()), shape);
    }
  });
  if (!fault.empty() || found == others.size()) return fault;
  std::map<std::string, parameter<T>> left = others;
  whole_->for_each_parameter(
      [&](const std::string& path, parameter<T>&) { left.erase(path); });
  return formatted("the copy has {} parameters that the model has not, such as \"{}\"",
                   left.size(), left.begin()->first);
}

}  // namespace parx
