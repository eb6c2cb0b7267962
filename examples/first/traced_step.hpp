// traced_step: what this rank does in a training step, from its own trace: rows for the thread that
// computes and for the messages, in milliseconds, and the bytes of gathered values.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/lane_drawing.hpp"
#include <parx/autograd.hpp>
#include <parx/core/json.hpp>
#include <parx/nn.hpp>
#include <parx/trace.hpp>

namespace examples {

using milliseconds = std::chrono::duration<double, std::milli>;

/// A layer with 8 MiB of values that takes its time and computes nothing: a forward sleeps for
/// `each`, a backward for twice as long. So computation takes no core from the messages, as on
/// hosts of their own.
class sleeping_layer : public parx::nn::module<sleeping_layer> {
 public:
  using value_type = float;
  sleeping_layer(int number, milliseconds each)
      : number_(number), each_(each), weight_("weight", parx::shape{std::size_t{2} << 20}) {}

  [[nodiscard]] parx::variable<float> forward(const parx::variable<float>& x) {
    {
      const parx::trace::span traced(parx::formatted("F{}", number_), "layer");
      std::this_thread::sleep_for(each_);
    }
    return parx::differentiable(
        x.value(),
        [each = each_, number = number_](const parx::tensor<float>& upstream,
                                         parx::grad_sink<float> dx, parx::grad_sink<float> dw) {
          const parx::trace::span traced(parx::formatted("B{}", number), "layer");
          std::this_thread::sleep_for(2 * each);
          if (dx.needed()) dx.add(upstream);
          if (dw.needed()) dw.add(parx::tensor<float>::ones({std::size_t{2} << 20}));
        },
        x, weight_);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, parx::nn::init::constant(1));
  }

 private:
  int number_;
  milliseconds each_;
  parx::parameter<float> weight_;
};

/// The rows of rank `rank` in the last span named "step" of its trace file.
inline std::vector<lane> lanes_of(std::string_view trace, int rank) {
  const parx::json::value file = parx::json::parse(trace);
  const auto& events = file.at("traceEvents").elements();
  double begin = 0, end = 0;  // of the step, in microseconds
  for (const auto& each : events) {
    if (each.at("name").text() != "step" || each.find("dur") == nullptr) continue;
    begin = each.as<double>("ts"), end = begin + each.as<double>("dur");
  }
  lane computation{.name = parx::formatted("rank {}: computes", rank)};
  lane messages{.name = parx::formatted("rank {}: sends", rank)};
  lane memory{.name = parx::formatted("rank {}: gathered", rank), .unit = "MiB"};
  for (const auto& each : events) {
    const auto* const start = each.find("ts");
    if (start == nullptr) continue;
    const double at = (start->as<double>() - begin) / 1000;
    const std::string& name = each.at("name").text();
    if (name == "bytes of gathered units") {
      const double mebibytes = each.at("args").as<double>("value") / (1 << 20);
      if (at * 1000 < end - begin) memory.curve.emplace_back(at, mebibytes);
      continue;
    }
    const auto* const category = each.find("cat");
    if (category == nullptr || at < 0 || at * 1000 >= end - begin || name == "step") continue;
    lane_box box{at, at + each.as<double>("dur") / 1000, name, "#bbbbbb"};
    const bool is_sent = category->text() == "comm";
    if (is_sent) box.label = name.substr(0, name.find(' '));  // without the group
    if (is_sent) box.fill = name.starts_with("all_gather") ? "#2f9e9b" : "#e08a3c";
    if (category->text() == "layer") box.fill = name[0] == 'F' ? "#4a86c8" : "#5aa55a";
    (is_sent ? messages : computation).boxes.push_back(std::move(box));
  }
  std::vector<lane> rows{std::move(computation), std::move(messages)};
  if (!memory.curve.empty()) rows.push_back(std::move(memory));
  return rows;
}

}  // namespace examples
