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

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/unix_time.hpp>
#include <parx/train/detail/append_file.hpp>
#include <parx/train/detail/crc32c.hpp>
#include <parx/train/detail/protobuf.hpp>

namespace parx::inline PARX_ABI::train {

namespace detail {

[[nodiscard]] inline std::string tf_record(std::string_view payload) {
  const std::string length = little_endian(payload.size(), 8);
  std::string record = length + little_endian(masked_crc32c(length), 4);
  record += payload;
  return record += little_endian(masked_crc32c(payload), 4);
}

}  // namespace detail

class event_writer {
 public:
  /// Whether a file of this name is an event file.
  [[nodiscard]] static bool is_name(std::string_view name) noexcept {
    return name.starts_with("events.out.tfevents.");
  }

  /// Creates a new event file in `folder`, which is created if it is missing. Throws errc::io.
  explicit event_writer(const std::string& folder) {
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    static std::atomic<unsigned> counter{0};
    // TensorBoard reads all files with "tfevents" in their names, ordered by the seconds.
    file_ =
        detail::append_file(formatted("{}/events.out.tfevents.{:010d}.{}.{}.{}", folder,
                                      static_cast<std::uint64_t>(unix_seconds()),
                                      parx::detail::host_name(), ::getpid(), counter.fetch_add(1)));
    put(event(0).bytes(3, "brain.Event:2"));
  }

  /// Adds a point to the curve `tag`; "train/loss" is the curve "loss" in the group "train".
  void scalar(std::string_view tag, double value, std::uint64_t step) {
    detail::protobuf_message point;
    point.bytes(1, tag).real32(2, static_cast<float>(value));
    put(event(step).bytes(5, summary(point)));
  }

  /// Adds Markdown that TensorBoard shows under "Text".
  void text(std::string_view tag, std::string_view markdown, std::uint64_t step) {
    detail::protobuf_message plugin, metadata, tensor, point;
    plugin.bytes(1, "text");
    metadata.bytes(1, plugin.text());
    detail::protobuf_message extent, shape;
    extent.varint(1, 1);
    shape.bytes(2, extent.text());
    tensor.varint(1, 7).bytes(2, shape.text()).bytes(8, markdown);  // DT_STRING, [1]
    point.bytes(1, tag).bytes(8, tensor.text()).bytes(9, metadata.text());
    put(event(step).bytes(5, summary(point)));
  }

  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

 private:
  [[nodiscard]] static detail::protobuf_message event(std::uint64_t step) {
    detail::protobuf_message made;
    made.real64(1, unix_seconds());
    if (step > 0) made.varint(2, step);
    return made;
  }
  [[nodiscard]] static std::string summary(const detail::protobuf_message& point) {
    detail::protobuf_message made;
    made.bytes(1, point.text());
    return made.text();
  }
  void put(const detail::protobuf_message& made) {
    file_.append(detail::tf_record(made.text()));
  }

  detail::append_file file_;
};

}  // namespace parx::train

namespace parx::inline PARX_ABI::train::detail {

}  // namespace parx::train::detail

namespace parx::inline PARX_ABI::train {

}  // namespace parx::train
