// agent_channel: the bytes between an agent and the keeper: JSON texts in frames, signed by the
// job's key where it has a secret.
//
// A frame is the length of its text (32 bits, little-endian), the text, and with a key a MAC over
// the direction, both sides' nonces, the frame's number and the text, so that nobody else can add,
// change or repeat one. The first two texts, one of each side, carry the nonces and are not signed:
// the opening, with the job's id, and its answer. Pure; a channel buffers at most one frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>
#include <parx/core/hmac.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/json.hpp>
#include <parx/core/random_hex.hpp>

namespace parx::inline PARX_ABI::detail {

enum class channel_side { agent, keeper };

/// The other side does not speak this protocol, or does not know the key.
struct channel_error : std::runtime_error {
  using runtime_error::runtime_error;
};

class agent_channel {
 public:
  static constexpr std::size_t longest = 1 << 20;  ///< a text, in bytes

  agent_channel(channel_side side, const job_key* key) : side_(side), key_(key) {}

  /// The bytes of one text to send.
  [[nodiscard]] std::string frame(const json::value& what) {
    const std::string text = json::dump(what);
    std::string bytes;
    const auto length = static_cast<std::uint32_t>(text.size());
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>(length >> shift & 0xFF));
    }
    bytes += text;
    if (is_signed(sent_)) bytes += job_key::view(proof(side_, sent_, text));
    ++sent_;
    return bytes;
  }
  /// The same with a signature that is wrong, for a side that has not proved to know the key.
  [[nodiscard]] std::string unsigned_frame(const json::value& what) {
    const bool lacks_signature = is_signed(sent_);
    std::string bytes = frame(what);
    if (lacks_signature) bytes.replace(bytes.size() - sizeof(mac), sizeof(mac), sizeof(mac), '\0');
    return bytes;
  }

  void feed(std::string_view bytes) { received_.append(bytes); }

  /// The next complete text. Throws channel_error where the bytes are none, or not signed by the
  /// key.
  [[nodiscard]] std::optional<json::value> next() {
    if (received_.size() < 4) return std::nullopt;
    std::uint32_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      length |= static_cast<std::uint32_t>(static_cast<unsigned char>(received_[i])) << (8 * i);
    }
    if (length > longest) throw channel_error("something else than parxrun answers there");
    const std::size_t mac_bytes = is_signed(taken_) ? sizeof(mac) : 0;
    if (received_.size() < 4 + length + mac_bytes) return std::nullopt;
    const std::string text = received_.substr(4, length);
    if (mac_bytes > 0) {
      mac signature;
      std::memcpy(signature.data(), received_.data() + 4 + length, sizeof signature);
      const auto other = side_ == channel_side::agent ? channel_side::keeper : channel_side::agent;
      if (!equal_in_constant_time(signature, proof(other, taken_, text))) {
        throw channel_error(
            "it has another secret: all parxrun of a job need the same "
            "PARX_SECRET or PARX_SECRET_FILE, and the same PARX_TLS");
      }
    }
    received_.erase(0, 4 + length + mac_bytes);
    ++taken_;
    try {
      return json::parse(text);
    } catch (const std::exception&) {
      throw channel_error("something else than parxrun answers there");
    }
  }

  /// To be set from the other side's first text, before the next one is sent or taken.
  void set_nonces(std::string of_agent, std::string of_keeper) {
    agent_nonce_ = std::move(of_agent);
    keeper_nonce_ = std::move(of_keeper);
  }

 private:
  [[nodiscard]] bool is_signed(std::uint64_t number) const noexcept {
    return key_ != nullptr && number > 0;
  }
  [[nodiscard]] mac proof(channel_side from, std::uint64_t number, std::string_view text) const {
    return key_->sign(from == channel_side::agent ? "parxrun agent" : "parxrun keeper",
                      {agent_nonce_, keeper_nonce_, job_key::view(number), text});
  }

  channel_side side_;
  const job_key* key_;
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
  std::string agent_nonce_;
  std::string keeper_nonce_;
  std::string received_;
};

}  // namespace parx::detail
