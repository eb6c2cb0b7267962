// request_parser: bytes of one client in, requests out. No I/O.
//
// Recognizes the client's dialect by its first bytes. Takes time linear in the bytes fed, however
// they are split: each field is consumed once, when it is complete. Every length is checked before
// memory is allocated for it, so random bytes (a port scanner's) cost nothing. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <parx/store/detail/protocol.hpp>

namespace parx::inline PARX_ABI::detail::store_protocol {

enum class parse_status {
  complete,   ///< a request was taken
  need_more,  ///< feed more bytes
  bad,        ///< not this protocol, or over a limit: hang up; reason() says why
};

class request_parser {
 public:
  /// `legacy` is the dialect of clients that start without the hello of torch 2.2: torch_1_13 or
  /// torch_2_1. The two differ from opcode 7 up; a client that uses 9, 10 or 11 must be torch_2_1.
  explicit request_parser(store_dialect legacy) : dialect_(legacy) {}

  void feed(std::string_view bytes) {
    if (read_ > 0 && (read_ == buffer_.size() || read_ >= 64 * 1024)) {
      buffer_.erase(0, read_);
      read_ = 0;
    }
    buffer_.append(bytes);
  }

  /// Takes the next whole request out of what was fed.
  [[nodiscard]] parse_status next(request& out) {
    if (!reason_.empty()) return parse_status::bad;
    const parse_status status = advance();
    if (status == parse_status::complete) {
      out = std::move(current_);
      in_request_ = false;
      // Frees the memory of a large value, which each client that ever sent one would keep.
      if (rest().empty() && buffer_.capacity() > 256 * 1024) {
        buffer_ = {};
        read_ = 0;
      }
    }
    return status;
  }

  /// Bytes buffered for an incomplete request.
  [[nodiscard]] std::size_t held() const noexcept {
    if (!in_request_) return buffer_.size() - read_;
    return buffer_.size() - read_ + message_bytes_ +
           sizeof(std::string) * (current_.keys.size() + current_.values.size());
  }
  [[nodiscard]] store_dialect dialect() const noexcept { return dialect_; }
  [[nodiscard]] std::string_view reason() const noexcept { return reason_; }

 private:
  enum class step { done, need_more, bad };

  parse_status advance() {
    if (!dialect_known_) {
      if (const step s = detect(); s != step::done) return as_status(s);
    }
    if (!in_request_) {
      if (const step s = start(); s != step::done) return as_status(s);
    }
    if (form_.counted && !count_known_) {
      if (rest().size() < 8) return parse_status::need_more;
      const auto count = take<std::uint64_t>(rest());
      if (count > max_keys) return as_status(fail("a request lists too many keys"));
      consume(8);
      repeats_ = static_cast<std::size_t>(count);
      count_known_ = true;
    }
    while (repeats_ > 0 && form_.size > 0) {
      if (const step s = read_field(form_.fields[field_]); s != step::done) return as_status(s);
      if (++field_ == form_.size) {
        field_ = 0;
        --repeats_;
      }
    }
    if (current_.op == operation::validate &&
        static_cast<std::uint32_t>(current_.number) != magic) {
      return as_status(fail("the magic number is wrong"));
    }
    return parse_status::complete;
  }

  step detect() {
    // Opcode 0 is SET in the legacy dialects, for which the hello's magic would mean a key of 1 GB.
    static constexpr std::string_view hello{"\x00\xce\xf7\x85\x3c", 5};
    const std::string_view first = rest().substr(0, hello.size());
    if (first.empty()) return step::need_more;
    if (first == hello) {
      dialect_ = store_dialect::torch_2_5;
    } else if (hello.starts_with(first)) {
      return step::need_more;
    }
    dialect_known_ = true;
    return step::done;
  }

  step start() {
    if (rest().empty()) return step::need_more;
    const auto opcode = static_cast<unsigned char>(rest().front());
    if (dialect_ == store_dialect::torch_1_13 && opcode >= opcodes(dialect_).size()) {
      dialect_ = store_dialect::torch_2_1;
    }
    const auto table = opcodes(dialect_);
    if (opcode >= table.size()) return fail("an opcode does not exist");
    consume(1);
    current_ = request{};
    current_.op = table[opcode];
    form_ = layout_of(current_.op);
    repeats_ = 1;
    field_ = 0;
    message_bytes_ = 0;
    count_known_ = false;
    in_request_ = true;
    return step::done;
  }

  step read_field(field kind) {
    const std::size_t width = kind == field::u32 ? 4 : 8;
    if (rest().size() < width) return step::need_more;
    if (kind == field::u32) {
      current_.number = take<std::uint32_t>(rest());
      consume(4);
      return step::done;
    }
    const auto number = take<std::uint64_t>(rest());
    if (kind == field::i64) {
      current_.number = static_cast<std::int64_t>(number);
      consume(8);
      return step::done;
    }
    if (kind == field::key && number > max_key_bytes) return fail("a key is too long");
    if (number > max_value_bytes) return fail("a value is too long");
    const auto length = static_cast<std::size_t>(number);
    if (message_bytes_ + length > max_message_bytes) return fail("a request is too long");
    if (rest().size() < 8 + length) return step::need_more;
    auto& list = kind == field::key ? current_.keys : current_.values;
    list.push_back(std::string(rest().substr(8, length)));
    message_bytes_ += length;
    consume(8 + length);
    return step::done;
  }

  step fail(const char* reason) {
    reason_ = reason;
    buffer_.clear();
    read_ = 0;
    return step::bad;
  }

  static parse_status as_status(step s) noexcept {
    return s == step::bad ? parse_status::bad : parse_status::need_more;
  }
  [[nodiscard]] std::string_view rest() const noexcept {
    return std::string_view(buffer_).substr(read_);
  }
  void consume(std::size_t count) noexcept { read_ += count; }

  store_dialect dialect_;
  bool dialect_known_ = false;
  std::string reason_;
  std::string buffer_;
  std::size_t read_ = 0;

  request current_;
  layout form_;
  bool in_request_ = false;
  bool count_known_ = false;
  std::size_t repeats_ = 0;
  std::size_t field_ = 0;
  std::size_t message_bytes_ = 0;
};

}  // namespace parx::detail::store_protocol
