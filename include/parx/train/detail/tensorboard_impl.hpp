// Definitions of tensorboard.hpp.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>

#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/unix_time.hpp>
#include <parx/train/detail/crc32c.hpp>
#include <parx/train/tensorboard.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE std::string tf_record(std::string_view payload) {
  const std::string length = little_endian(payload.size(), 8);
  std::string record = length + little_endian(masked_crc32c(length), 4);
  record += payload;
  return record += little_endian(masked_crc32c(payload), 4);
}

}  // namespace parx::train::detail

namespace parx::inline PARX_ABI::train {

PARX_INLINE event_writer::event_writer(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  static std::atomic<unsigned> counter{0};
  // TensorBoard reads all files with "tfevents" in their names, ordered by the seconds.
  file_ = detail::append_file(formatted(
      "{}/events.out.tfevents.{:010d}.{}.{}.{}", folder, static_cast<std::uint64_t>(unix_seconds()),
      parx::detail::host_name(), ::getpid(), counter.fetch_add(1)));
  put(event(0).bytes(3, "brain.Event:2"));
}

PARX_INLINE void event_writer::scalar(std::string_view tag, double value, std::uint64_t step) {
  detail::protobuf_message point;
  point.bytes(1, tag).real32(2, static_cast<float>(value));
  put(event(step).bytes(5, summary(point)));
}

PARX_INLINE detail::protobuf_message event_writer::event(std::uint64_t step) {
  detail::protobuf_message made;
  made.real64(1, unix_seconds());
  if (step > 0) made.varint(2, step);
  return made;
}

PARX_INLINE std::string event_writer::summary(const detail::protobuf_message& point) {
  detail::protobuf_message made;
  made.bytes(1, point.text());
  return made.text();
}

PARX_INLINE void event_writer::put(const detail::protobuf_message& made) {
  file_.append(detail::tf_record(made.text()));
}

PARX_INLINE void event_writer::text(std::string_view tag, std::string_view markdown,
                                    std::uint64_t step) {
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

}  // namespace parx::train
