// Definitions of cluster.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include <parx/core/check.hpp>
#include <parx/plan/cluster.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE plan_link parse_link(std::string_view text) {
  if (text == "memory") return plan_links::memory;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view speed = text.substr(0, colon);
  double number = 0;
  const auto [unit, code] = std::from_chars(speed.data(), speed.data() + speed.size(), number);
  const std::string_view word(unit, static_cast<std::size_t>(speed.data() + speed.size() - unit));
  double latency = 20;
  bool right = code == std::errc{} && std::isfinite(number) && number > 0 &&
               (word == "gbit" || word == "mbit");
  if (colon < text.size()) {
    const std::string_view rest = text.substr(colon + 1);
    const auto [end, wrong] = std::from_chars(rest.data(), rest.data() + rest.size(), latency);
    right = right && wrong == std::errc{} && end == rest.data() + rest.size() &&
            std::isfinite(latency) && latency >= 0;
  }
  require(right,
          "link \"{}\": give memory, or a speed such as 10gbit or 200mbit, with the microseconds "
          "that a message takes 10gbit:100",
          text);
  const double bytes = number * (word == "gbit" ? 1.25e8 : 1.25e5);
  for (const plan_link& usual : {plan_links::ethernet_1g, plan_links::ethernet_10g,
                                 plan_links::ethernet_25g, plan_links::infiniband_100g}) {
    if (colon == text.size() && bytes == usual.bytes_per_second) return usual;
  }
  return {bytes, latency * 1e-6};
}

}  // namespace parx
