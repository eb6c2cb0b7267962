// What reads bytes that others made, each as a function of any bytes whatever, which throws
// std::logic_error where a promise is broken: what is accepted is written and read again as the
// same, and how bytes are cut changes nothing. Any other exception than those that the reader
// documents is a find, too.
//
// fuzz/targets_test.cpp runs them over seeds and their mutations; fuzz/run.sh under libFuzzer.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tools/parxrun/nodes/agent_channel.hpp"
#include <parx/checkpoint/safetensors.hpp>
#include <parx/core/error.hpp>
#include <parx/core/hostlist.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/json.hpp>
#include <parx/data/formats/csv.hpp>
#include <parx/data/formats/jsonl.hpp>
#include <parx/pipeline/csv.hpp>
#include <parx/store/detail/mutual_authentication.hpp>
#include <parx/store/detail/request_parser.hpp>
#include <parx/store/detail/server_core.hpp>
#include <parx/transport/detail/frame.hpp>

namespace fuzz {

inline void promise(bool kept, const char* what) {
  if (!kept) throw std::logic_error(what);
}

/// The bytes as a file, for readers that take a path.
class as_file {
 public:
  explicit as_file(std::string_view bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  ~as_file() { std::remove(path_.c_str()); }
  as_file(const as_file&) = delete;
  as_file& operator=(const as_file&) = delete;

 private:
  std::string path_ = fmt::format("/dev/shm/parx-fuzz-{}", ::getpid());
};

inline void hello(std::string_view bytes) {
  parx::detail::hello_bytes raw{};
  std::memcpy(raw.data(), bytes.data(), std::min(bytes.size(), raw.size()));
  const auto read = parx::detail::parse_hello(raw);
  if (read) promise(std::memcmp(&*read, raw.data(), raw.size()) == 0, "a hello is read as another");
}

/// What a store's server answers to a client that sends `bytes` in pieces of `piece` bytes.
inline std::string store_answers(std::string_view bytes, std::size_t piece,
                                 parx::store_dialect legacy) {
  namespace protocol = parx::detail::store_protocol;
  std::string sent;
  protocol::server_core core([&](std::uint64_t, std::string_view answer) { sent += answer; });
  protocol::request_parser parser(legacy);
  protocol::request request;
  while (!bytes.empty()) {
    parser.feed(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    for (;;) {
      const auto status = parser.next(request);
      if (status == protocol::parse_status::need_more) break;
      if (status == protocol::parse_status::bad) return sent + "bad";
      (void)core.answer_bytes(request);
      const auto verdict = core.execute(1, parser.dialect(), request);
      if (verdict == protocol::verdict::hang_up) {
        core.forget(1);
        return sent + "hangs up";
      }
    }
  }
  core.forget(1);
  return sent;
}
inline void store_codec(std::string_view bytes) {
  using parx::store_dialect;
  for (const store_dialect legacy : {store_dialect::torch_1_13, store_dialect::torch_2_1}) {
    promise(store_answers(bytes, bytes.size() + 1, legacy) == store_answers(bytes, 3, legacy),
            "the store answers other pieces of the same bytes otherwise");
  }
}

inline void handshake(std::string_view bytes) {
  const parx::job_key key("a secret of the fuzzers", "job");
  for (const std::size_t piece : {bytes.size() + 1, std::size_t{7}}) {
    parx::detail::mutual_authentication door(key);
    std::string_view rest = bytes;
    std::string answer;
    while (!rest.empty()) {
      std::string_view part = rest.substr(0, piece);
      rest.remove_prefix(part.size());
      const auto status = door.feed(part, answer);
      promise(status != parx::detail::mutual_authentication::status::admitted,
              "a client without the key is admitted");
      if (status == parx::detail::mutual_authentication::status::refused) break;
    }
    promise(answer.size() <= 32, "a stranger gets more than a nonce");
  }
}

/// What a side of the connection between two parxrun makes of `bytes` in pieces of `piece` bytes.
inline std::string taken_by(parx::detail::agent_channel channel, std::string_view bytes,
                            std::size_t piece, bool has_key) {
  using parx::detail::agent_channel;
  std::string taken;
  try {
    while (!bytes.empty()) {
      channel.feed(bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
      while (const auto text = channel.next()) taken += parx::json::dump(*text) + "\n";
      promise(!has_key || !channel.is_open(), "a stranger has proved to know the key");
      promise(channel.take_replies().size() <= agent_channel::longest_of_stranger,
              "a stranger gets a long answer");
    }
  } catch (const parx::detail::channel_error& refused) {
    taken += refused.what();
  }
  return taken;
}
inline void parxrun_channel(std::string_view bytes) {
  using parx::detail::channel_side;
  const parx::job_key key("a secret of the fuzzers", "job");
  for (const channel_side side : {channel_side::agent, channel_side::coordinator}) {
    for (const parx::job_key* each : {&key, static_cast<const parx::job_key*>(nullptr)}) {
      const auto taken = [&](std::size_t piece) {
        return taken_by({side, "job", each}, bytes, piece, each != nullptr);
      };
      promise(taken(bytes.size() + 1) == taken(3),
              "parxrun takes other pieces of the same bytes for other texts");
    }
  }
}

inline void safetensors(std::string_view bytes) {
  const as_file file(bytes);
  try {
    const parx::safetensors_file opened(file.path());
    for (const auto& tensor : opened.tensors()) {
      promise(tensor.begin <= tensor.end && tensor.end <= bytes.size(),
              "a tensor lies beyond its file");
    }
  } catch (const parx::error&) {
  }
}

inline void hostlist(std::string_view bytes) {
  try {
    promise(parx::expand_hostlist(bytes).size() <= 1'000'000, "more hosts than are promised");
  } catch (const parx::usage_error&) {
  }
}

inline void json(std::string_view bytes) {
  try {
    const parx::json::value read = parx::json::parse(bytes);
    const std::string text = parx::json::dump(read);
    promise(parx::json::dump(parx::json::parse(text)) == text, "json is written as other json");
  } catch (const parx::json::error&) {
  }
}

inline void jsonl(std::string_view bytes) {
  const as_file file(bytes);
  try {
    parx::data::jsonl_reader reader(file.path());
    parx::json::value row;
    while (reader.next(row)) continue;
  } catch (const parx::error&) {
  }
}

inline void csv(std::string_view bytes) {
  const as_file file(bytes);
  for (const auto& options : {parx::data::csv_options{}, parx::data::tsv()}) {
    try {
      parx::data::csv_reader reader(file.path(), options);
      std::vector<std::string> fields;
      while (reader.next(fields)) {
        promise(fields.size() == reader.header().size(), "a record has other fields than its file");
      }
    } catch (const parx::error&) {
    }
  }
}

inline void schedule(std::string_view bytes) {
  try {
    const parx::pipeline_table table = parx::from_csv(bytes);
    promise(parx::from_csv(parx::to_csv(table)).ranks == table.ranks,
            "a schedule is written as another");
  } catch (const parx::usage_error&) {
  }
}

struct target {
  const char* name;
  void (*run)(std::string_view bytes);
  std::vector<std::string> seeds;
};

inline std::vector<target> targets() {
  using parx::detail::link_hello;
  const auto raw = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto u64 = [&](std::uint64_t value) { return raw(value); };
  const auto frame = [&](std::string_view value) {
    return raw(static_cast<std::uint32_t>(value.size())) + std::string(value);
  };
  const auto text = [&](std::string_view value) { return u64(value.size()) + std::string(value); };
  const std::string magic("\x00\xce\xf7\x85\x3c", 5), op_set("\x01", 1), op_get("\x03", 1);
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  return {
      {"hello", hello, {raw(link_hello{}), raw(link_hello{.group = 7, .from = 1, .to = 0})}},
      {"store",
       store_codec,
       {magic + op_set + text("key") + text("value") + op_get + text("key"),
        std::string("\x00", 1) + text("key") + text("value") + std::string("\x02", 1) + text("key"),
        magic + std::string("\x06", 1) + u64(2) + text("a") + text("b"),
        magic + std::string("\x0a", 1) + u64(1) + text("a") + text("x")}},
      {"handshake",
       handshake,
       {std::string(parx::detail::authentication_magic) + std::string(64, 'n')}},
      {"parxrun",
       parxrun_channel,
       {frame(R"({"id":"job","secret":false,"nonce":"n"})") + frame(R"({"proof":true})") +
            frame(R"({"node":"n1","ranks":2})"),
        frame(R"({"nonce":"n"})") + frame(R"({"proof":true})") + frame(R"({"end":{"code":0}})"),
        frame(R"({"id":"job","secret":true,"nonce":"n"})") + frame(R"({"proof":true})"),
        frame(R"({"refused":"no"})")}},
      {"safetensors",
       safetensors,
       {u64(header.size()) + header + std::string(8, '\1'), u64(2) + "{}"}},
      {"hostlist", hostlist, {"n[01-03,7],gpu-a", "a[1-2]b[3-4]", "n[000-999]x[0-9]"}},
      {"json",
       json,
       {R"({"a": [1, -2.5e3, true, null, "\u00e9\n\ud83d\ude00"], "b": {}})", "[[[[[]]]]]"}},
      {"jsonl", jsonl, {"{\"text\": \"a\"}\n\n[1]\r\n", "{}"}},
      {"csv", csv, {"a,b\n1,\"x \"\"y\"\"\n z\"\n", "label\ttext\n1\ta \"b\n"}},
      {"schedule",
       schedule,
       {"0F0,0F1,0B0,0B1\n,1F0,1B0,1F1,1B1\n", "0F0,0I0,0W0,0REDUCE_GRAD\n1F0,1B0,,\n",
        "65536F65536\n", "0F0,2147483647B0\n"}},
  };
}

}  // namespace fuzz
