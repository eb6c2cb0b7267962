// agent_channel: the bytes between an agent and the coordinator: JSON texts in frames, signed by
// the job's key where it has a secret.
//
// A frame is the length of its text (32 bits, little-endian), the text, and with a key a MAC over
// the side, both sides' nonces, the frame's number and the text, so that nobody else can add,
// change, repeat or send back one. Each side's first frame carries its nonce and is not signed:
//
//   agent: the job's id, a nonce     coordinator: a nonce
//   agent: "proof", signed           coordinator: "proof", signed
//
// Before that is complete no other text is taken, sent or passed on, and a frame is short: neither
// side obeys, tells or stores for one that has not proved to know the key. The agent proves first,
// so that an unauthenticated caller never gets a MAC with which it could test guesses. A job
// without a secret goes through the same steps, which prove nothing then. Pure; buffers at most one
// frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <parx/core/abi.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hmac.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/json.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/random_hex.hpp>

namespace parx::inline PARX_ABI::detail {

enum class channel_side { agent, coordinator };

/// The other side does not speak this protocol, does not know the key, or refuses this one.
struct channel_error : std::runtime_error {
  enum class cause { wrong, refusal };

  explicit channel_error(const std::string& what, cause why = cause::wrong)
      : runtime_error(what), because(why) {}
  cause because;
};

class agent_channel {
 public:
  /// The longest texts, in bytes: of one that need not be of this job, and of one that is.
  static constexpr std::size_t longest_of_stranger = 4 << 10;
  static constexpr std::size_t longest = 16 << 20;

  /// `key` may be null, and must outlive this.
  agent_channel(channel_side side, std::string id, const job_key* key)
      : side_(side), id_(std::move(id)), key_(key), own_nonce_(random_hex()) {
    if (side_ == channel_side::agent) {
      reply(json::object{{"id", id_}, {"secret", key_ != nullptr}, {"nonce", own_nonce_}});
    }
  }

  /// Whether both sides have proved to know the key.
  [[nodiscard]] bool is_open() const noexcept { return step_ == step::open; }
  /// From now on the other side may send long texts.
  void trust() noexcept { most_ = longest; }

  /// What the proofs need to be sent, once.
  [[nodiscard]] std::string take_replies() { return std::exchange(replies_, {}); }

  /// The bytes of one text to send, through an open channel.
  [[nodiscard]] std::string frame(const json::value& what) { return bytes_of(json::dump(what)); }
  /// The bytes that tell the other side why it is refused. In place of a signature there are zeros
  /// where it has not proved to know the key.
  [[nodiscard]] std::string refusal(const std::string& why) {
    const bool lacks_signature = is_signed(sent_) && !is_open();
    std::string bytes = frame(json::object{{"refused", why}});
    if (lacks_signature) bytes.replace(bytes.size() - sizeof(mac), sizeof(mac), sizeof(mac), '\0');
    return bytes;
  }

  void feed(std::string_view bytes) { received_.append(bytes); }

  /// The next complete text through the open channel. Throws channel_error where the bytes are
  /// none, are not signed by the key, or refuse this side.
  [[nodiscard]] std::optional<json::value> next() {
    while (const auto text = next_text()) {
      if (is_open()) return text;
      try {
        take_step(*text);
      } catch (const json::error&) {
        throw channel_error(std::string(no_parxrun));
      }
    }
    return std::nullopt;
  }

 private:
  enum class step {
    nonce,  ///< awaits the other side's
    proof,
    open,
  };
  static constexpr std::string_view no_parxrun = "something else than parxrun answers there";

  void take_step(const json::value& text) {
    if (const json::value* const why = text.find("refused")) {
      throw channel_error(printable(why->text()), channel_error::cause::refusal);
    }
    if (step_ == step::nonce) {
      if (side_ == channel_side::coordinator) check_job(text);
      other_nonce_ = text.at("nonce").text();
      if (side_ == channel_side::coordinator) reply(json::object{{"nonce", own_nonce_}});
      step_ = step::proof;
      if (side_ == channel_side::agent) reply(json::object{{"proof", true}});
    } else {
      if (!text.as<bool>("proof")) throw channel_error(std::string(no_parxrun));
      if (side_ == channel_side::coordinator) reply(json::object{{"proof", true}});
      step_ = step::open;
      if (side_ == channel_side::agent) trust();
    }
  }

  void check_job(const json::value& text) const {
    const std::string id = text.at("id").text();
    if (id != id_) {
      throw channel_error(
          formatted("the job there is \"{}\", not \"{}\": two jobs cannot have one endpoint. Give "
                    "this one another port, or the other's --rdzv-id if they are one job",
                    id_, printable(id)));
    }
    if (text.as<bool>("secret") == (key_ != nullptr)) return;
    throw channel_error(
        formatted("the parxrun there has {} secret, and this one has {}: give both the same "
                  "PARX_SECRET or PARX_SECRET_FILE",
                  key_ != nullptr ? "a" : "no", key_ != nullptr ? "none" : "one"));
  }

  void reply(const json::value& what) { replies_ += frame(what); }

  [[nodiscard]] std::string bytes_of(const std::string& text) {
    std::string bytes;
    const auto length = static_cast<std::uint32_t>(text.size());
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>(length >> shift & 0xFF));
    }
    bytes += text;
    if (is_signed(sent_)) bytes += job_key::view(signature_of(side_, sent_, text));
    ++sent_;
    return bytes;
  }

  [[nodiscard]] std::optional<json::value> next_text() {
    if (received_.size() < 4) return std::nullopt;
    std::uint32_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      length |= static_cast<std::uint32_t>(static_cast<unsigned char>(received_[i])) << (8 * i);
    }
    if (length > most_) throw channel_error(std::string(no_parxrun));
    const std::size_t mac_bytes = is_signed(taken_) ? sizeof(mac) : 0;
    if (received_.size() < 4 + length + mac_bytes) return std::nullopt;
    const std::string text = received_.substr(4, length);
    if (mac_bytes > 0) {
      mac signature;
      std::memcpy(signature.data(), received_.data() + 4 + length, sizeof signature);
      const auto other =
          side_ == channel_side::agent ? channel_side::coordinator : channel_side::agent;
      if (!equal_in_constant_time(signature, signature_of(other, taken_, text))) {
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
      throw channel_error(std::string(no_parxrun));
    }
  }

  [[nodiscard]] bool is_signed(std::uint64_t number) const noexcept {
    return key_ != nullptr && number > 0;
  }
  [[nodiscard]] mac signature_of(channel_side from, std::uint64_t number,
                                 std::string_view text) const {
    const bool is_agent = side_ == channel_side::agent;
    return key_->sign(from == channel_side::agent ? "parxrun agent" : "parxrun coordinator",
                      {is_agent ? own_nonce_ : other_nonce_, is_agent ? other_nonce_ : own_nonce_,
                       job_key::view(number), text});
  }

  channel_side side_;
  std::string id_;  ///< of the job
  const job_key* key_;
  step step_ = step::nonce;
  std::size_t most_ = longest_of_stranger;
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
  std::string own_nonce_;
  std::string other_nonce_;
  std::string replies_;
  std::string received_;
};

}  // namespace parx::detail
