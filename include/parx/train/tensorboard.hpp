// event_writer: metrics in a file that TensorBoard opens.
//
//   parx::train::event_writer events("runs/first");
//   events.scalar("train/loss", 1.25, step);
//
// The file is a sequence of TFRecords, length (8 bytes), masked CRC of the length, payload, masked
// CRC of the payload, all little-endian; each payload is a tensorflow.Event in Protocol Buffers.
// Events are written to the file before a call returns, so a running TensorBoard sees them.
// One thread. Source: TensorFlow, tsl/lib/io/record_writer.cc and core/util/event.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <parx/train/detail/append_file.hpp>
#include <parx/train/detail/protobuf.hpp>

namespace parx::inline PARX_ABI::train {

namespace detail {

[[nodiscard]] std::string tf_record(std::string_view payload);

}  // namespace detail

class event_writer {
 public:
  /// Whether a file of this name is an event file.
  [[nodiscard]] static bool is_name(std::string_view name) noexcept {
    return name.starts_with("events.out.tfevents.");
  }

  /// Creates a new event file in `folder`, which is created if it is missing. Throws errc::io.
  explicit event_writer(const std::string& folder);

  /// Adds a point to the curve `tag`; "train/loss" is the curve "loss" in the group "train".
  void scalar(std::string_view tag, double value, std::uint64_t step);

  /// Adds Markdown that TensorBoard shows under "Text".
  void text(std::string_view tag, std::string_view markdown, std::uint64_t step);

  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

 private:
  [[nodiscard]] static detail::protobuf_message event(std::uint64_t step);
  [[nodiscard]] static std::string summary(const detail::protobuf_message& point);
  void put(const detail::protobuf_message& made);

  detail::append_file file_;
};

}  // namespace parx::train

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/tensorboard_impl.hpp>
#endif
