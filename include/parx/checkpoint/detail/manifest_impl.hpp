// Definitions of manifest.hpp.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <parx/checkpoint/manifest.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/core/xxh64.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::string checksum_text(std::uint64_t checksum) {
  return formatted("{:016x}", checksum);
}

PARX_INLINE std::uint64_t parse_checksum(std::string_view text) {
  std::uint64_t checksum = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, checksum, 16);
  if (text.size() != 16 || code != std::errc{} || stop != end)
    throw json::error(formatted("\"{}\" is not a checksum", text));
  return checksum;
}

PARX_INLINE std::string seal(const json::object& members) {
  const std::string text = json::dump(members);
  return checksum_text(xxh64::of(std::as_bytes(std::span(text))));
}

PARX_INLINE std::string encode_manifest(const checkpoint_manifest& manifest) {
  json::object members{{"format", "parx checkpoint 1"}, {"step", manifest.step}};
  if (manifest.metric && std::isfinite(*manifest.metric)) members["metric"] = *manifest.metric;
  json::array files;
  for (const auto& file : manifest.files)
    files.push_back(json::object{
        {"name", file.name}, {"bytes", file.bytes}, {"xxh64", checksum_text(file.checksum)}});
  members["files"] = std::move(files);
  members["xxh64"] = seal(members);
  return json::dump(members, 2) + "\n";
}

PARX_INLINE checkpoint_manifest parse_manifest(std::string_view text) {
  const json::value whole = json::parse(text);
  if (whole.at("format").text() != "parx checkpoint 1")
    throw json::error(formatted("its format is \"{}\", which this version does not know",
                                whole.at("format").text()));
  json::object sealed;
  for (const auto& [key, held] : whole.members()) {
    if (key != "xxh64") sealed[key] = held;
  }
  if (whole.at("xxh64").text() != seal(sealed))
    throw json::error("its checksum does not fit its contents");
  checkpoint_manifest manifest{.step = whole.as<std::uint64_t>("step")};
  if (const json::value* metric = whole.find("metric")) manifest.metric = metric->as<double>();
  for (const json::value& one : whole.at("files").elements()) {
    const std::string& name = one.at("name").text();
    if (name.empty() || name.find('/') != std::string::npos || name.front() == '.')
      throw json::error(formatted("\"{}\" is not the name of a file beside it", name));
    manifest.files.push_back({.name = name,
                              .bytes = one.as<std::uint64_t>("bytes"),
                              .checksum = parse_checksum(one.at("xxh64").text())});
  }
  return manifest;
}

}  // namespace parx::detail
