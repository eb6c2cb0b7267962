// text_bytes: whether the bytes of a file are text in UTF-8, as the readers of text expect.
//
// What other programs write in its place: UTF-16 with a byte order mark (Excel's "Unicode text"),
// UTF-16 without one, and binary files. All have NUL bytes, which end an exception's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::data::detail {

/// The bytes of UTF-8's byte order mark at the beginning of a file: 0 or 3. Throws errc::bad_data
/// for the marks of UTF-16 and UTF-32.
[[nodiscard]] std::size_t size_of_mark(std::string_view first, const std::string& path);

/// `bytes` begin in this line of the file, counted from 1. Throws errc::bad_data for a NUL.
void require_no_nul(std::string_view bytes, std::uint64_t line, const std::string& path);

}  // namespace parx::data::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/formats/detail/text_bytes_impl.hpp>
#endif
