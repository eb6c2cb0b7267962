#include <parx/store/detail/request_parser.hpp>

#include <store/wire.hpp>

#include <random>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/core/error.hpp>

namespace {

using namespace parx::detail::store_protocol;
using parx::store_dialect;
using store_wire::u64;

// "03 05*0" style: two hex digits a byte; plain text in quotes.
std::string bytes(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ') {
      ++i;
    } else if (text[i] == '\'') {
      const auto end = text.find('\'', i + 1);
      result += text.substr(i + 1, end - i - 1);
      i = end + 1;
    } else {
      result.push_back(static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
      i += 2;
    }
  }
  return result;
}

bool same(const request& x, const request& y) {
  return x.op == y.op && x.keys == y.keys && x.values == y.values && x.number == y.number;
}

std::string encoded(store_dialect dialect, const request& r) {
  std::string out;
  encode(out, dialect, r);
  return out;
}

// One request of every operation of a dialect.
std::vector<request> one_of_each(store_dialect dialect) {
  std::vector<request> result;
  for (const operation op : opcodes(dialect)) {
    request r{.op = op};
    const layout form = layout_of(op);
    for (std::size_t i = 0; i < (form.counted ? 3U : 1U); ++i) {
      for (std::size_t f = 0; f < form.size; ++f) {
        if (form.fields[f] == field::key) r.keys.push_back("/key" + std::to_string(i));
        if (form.fields[f] == field::value) r.values.push_back(std::string(20 * i + f, 'v'));
        if (form.fields[f] == field::i64) r.number = -7;
        if (form.fields[f] == field::u32) r.number = op == operation::validate ? magic : 0xfedcba98;
      }
    }
    result.push_back(r);
  }
  return result;
}

std::vector<request> parse_all(request_parser& parser, std::string_view input) {
  parser.feed(input);
  std::vector<request> result;
  request r;
  while (parser.next(r) == parse_status::complete) result.push_back(r);
  return result;
}

}  // namespace

// Captured from torch 1.13.1; from 2.2 on the same requests have opcodes one higher.
BOOST_AUTO_TEST_CASE(requests_have_the_bytes_that_pytorch_sends) {
  struct golden {
    request r;
    std::string tail;  // after the opcode
    unsigned opcode;
  };
  const std::vector<golden> table = {
      {{.op = operation::add, .keys = {"init/"}, .number = 1},
       bytes("05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00"),
       3},
      {{.op = operation::set, .keys = {"/k"}, .values = {"hello"}},
       bytes("02 00 00 00 00 00 00 00 2f 6b 05 00 00 00 00 00 00 00 68 65 6c 6c 6f"),
       0},
      {{.op = operation::wait, .keys = {"/k"}},
       bytes("01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b"),
       5},
      {{.op = operation::get, .keys = {"/k"}}, bytes("02 00 00 00 00 00 00 00 2f 6b"), 2},
      {{.op = operation::add, .keys = {"/ctr"}, .number = -7},
       bytes("04 00 00 00 00 00 00 00 2f 63 74 72 f9 ff ff ff ff ff ff ff"),
       3},
      {{.op = operation::compare_set, .keys = {"/k"}, .values = {"hello", "x"}},
       bytes("02 00 00 00 00 00 00 00 2f 6b 05 00 00 00 00 00 00 00 'hello' 01 00 00 00 00 00 00 "
             "00 78"),
       1},
      {{.op = operation::num_keys}, "", 6},
  };
  for (const golden& g : table) {
    for (const auto& [dialect, shift] : {std::pair{store_dialect::torch_1_13, 0U},
                                         {store_dialect::torch_2_1, 0U},
                                         {store_dialect::torch_2_2, 1U},
                                         {store_dialect::torch_2_5, 1U}}) {
      const std::string expected = static_cast<char>(g.opcode + shift) + g.tail;
      BOOST_TEST((encoded(dialect, g.r) == expected));
    }
  }
  const request remove{.op = operation::delete_key, .keys = {"/k"}};
  BOOST_TEST(encoded(store_dialect::torch_1_13, remove)[0] == 8);
  BOOST_TEST(encoded(store_dialect::torch_2_1, remove)[0] == 7);
  BOOST_TEST(encoded(store_dialect::torch_2_5, remove)[0] == 8);
  const request hello{.op = operation::validate, .number = magic};
  BOOST_TEST((encoded(store_dialect::torch_2_2, hello) == bytes("00 ce f7 85 3c")));
  const request ping{.op = operation::ping, .number = 0x04030201};
  BOOST_TEST((encoded(store_dialect::torch_2_5, ping) == bytes("0d 01 02 03 04")));
}

BOOST_AUTO_TEST_CASE(opcodes_are_those_of_the_releases) {
  using enum operation;
  struct row {
    operation op;
    int torch_1_13, torch_2_1, torch_2_2, torch_2_5;  // -1: does not exist
  };
  const row table[] = {
      {validate, -1, -1, 0, 0},    {set, 0, 0, 1, 1},
      {compare_set, 1, 1, 2, 2},   {get, 2, 2, 3, 3},
      {add, 3, 3, 4, 4},           {check, 4, 4, 5, 5},
      {wait, 5, 5, 6, 6},          {num_keys, 6, 6, 7, 7},
      {watch_key, 7, -1, -1, -1},  {delete_key, 8, 7, 8, 8},
      {append, -1, 8, 9, 9},       {multi_get, -1, 9, 10, 10},
      {multi_set, -1, 10, 11, 11}, {cancel_wait, -1, 11, 12, 12},
      {ping, -1, -1, -1, 13},      {queue_push, -1, -1, -1, 14},
      {queue_pop, -1, -1, -1, 15}, {queue_len, -1, -1, -1, 16},
      {list, -1, -1, -1, 17},
  };
  for (const row& r : table) {
    const auto number = [&](store_dialect d) {
      return static_cast<int>(opcode_of(d, r.op).value_or(255));
    };
    BOOST_TEST(number(store_dialect::torch_1_13) == (r.torch_1_13 & 255));
    BOOST_TEST(number(store_dialect::torch_2_1) == (r.torch_2_1 & 255));
    BOOST_TEST(number(store_dialect::torch_2_2) == (r.torch_2_2 & 255));
    BOOST_TEST(number(store_dialect::torch_2_5) == (r.torch_2_5 & 255));
  }
}

BOOST_AUTO_TEST_CASE(every_request_survives_every_cut_of_its_bytes) {
  for (const auto dialect :
       {store_dialect::torch_1_13, store_dialect::torch_2_1, store_dialect::torch_2_5}) {
    const std::vector<request> sent = one_of_each(dialect);
    std::string stream;
    for (const request& r : sent) encode(stream, dialect, r);
    const auto legacy = dialect == store_dialect::torch_2_5 ? store_dialect::torch_1_13 : dialect;
    const auto arrived_whole = [&](request_parser& parser, std::vector<request> got) {
      return got.size() == sent.size() && parser.dialect() == dialect &&
             std::equal(got.begin(), got.end(), sent.begin(), same);
    };
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
      request_parser parser(legacy);
      auto got = parse_all(parser, std::string_view(stream).substr(0, cut));
      for (request& r : parse_all(parser, std::string_view(stream).substr(cut))) got.push_back(r);
      BOOST_TEST_REQUIRE(arrived_whole(parser, got), "cut at byte " << cut);
    }
    request_parser drip(legacy);
    std::vector<request> got;
    for (const char c : stream) {
      for (request& r : parse_all(drip, {&c, 1})) got.push_back(r);
    }
    BOOST_TEST(arrived_whole(drip, got));
  }
}

BOOST_AUTO_TEST_CASE(a_client_without_hello_that_uses_a_new_opcode_is_of_torch_2_1) {
  request_parser parser(store_dialect::torch_1_13);
  const request many{.op = operation::multi_get, .keys = {"/a", "/b"}};
  const request remove{.op = operation::delete_key, .keys = {"/a"}};
  const auto got = parse_all(
      parser, encoded(store_dialect::torch_2_1, many) + encoded(store_dialect::torch_2_1, remove));
  BOOST_TEST(got.size() == 2U);
  BOOST_TEST(same(got.at(0), many));
  BOOST_TEST(same(got.at(1), remove));
}

BOOST_AUTO_TEST_CASE(invalid_requests_are_refused_before_memory_is_allocated) {
  const auto refuses = [](const std::string& input) {
    request_parser parser(store_dialect::torch_1_13);
    parser.feed(input);
    request r;
    parse_status status = parser.next(r);
    if (status == parse_status::complete && r.op == operation::validate) status = parser.next(r);
    return status == parse_status::bad && !parser.reason().empty() &&
           parser.next(r) == parse_status::bad;
  };
  BOOST_TEST(refuses("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  BOOST_TEST(refuses(bytes("16 03 01 02 00 01 00 01 fc 03 03")));  // TLS hello
  BOOST_TEST(refuses("SSH-2.0-OpenSSH_9.2\r\n"));
  BOOST_TEST(refuses(bytes("00 ce f7 85 3d 00 00 00 00")));     // magic off by one: a huge SET
  BOOST_TEST(refuses(bytes("00 ce f7 85 3c 63")));              // opcode that does not exist
  BOOST_TEST(refuses(bytes("00 ce f7 85 3c 00 00 00 00 00")));  // second magic wrong
  BOOST_TEST(refuses("\x02" + u64(max_key_bytes + 1)));         // key too long
  BOOST_TEST(refuses(bytes("02 ff ff ff ff ff ff ff ff")));
  BOOST_TEST(refuses(std::string(1, '\0') + u64(2) + "/k" + u64(max_value_bytes + 1)));
  BOOST_TEST(refuses("\x05" + u64(max_keys + 1)));
  BOOST_TEST(refuses(bytes("05 ff ff ff ff ff ff ff ff")));
}

BOOST_AUTO_TEST_CASE(a_request_may_reach_but_not_pass_the_limit_of_its_whole) {
  std::string stream = "\x0a" + u64(9);  // torch 2.1's multi_set
  request_parser parser(store_dialect::torch_2_1);
  parser.feed(stream);
  request r;
  parse_status status = parse_status::need_more;
  for (int i = 0; i < 8; ++i) {
    BOOST_TEST((parser.next(r) == parse_status::need_more));
    parser.feed(u64(0) + u64(max_message_bytes / 8) + std::string(max_message_bytes / 8, 'v'));
    status = parser.next(r);
  }
  BOOST_TEST((status == parse_status::need_more));
  parser.feed(u64(1) + "x");
  BOOST_TEST((parser.next(r) == parse_status::bad));
}

BOOST_AUTO_TEST_CASE(random_bytes_are_parsed_or_refused_without_harm) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 20'000; ++round) {
    request_parser parser(round % 2 == 0 ? store_dialect::torch_1_13 : store_dialect::torch_2_1);
    if (round % 3 == 0) parser.feed(bytes("00 ce f7 85 3c"));
    std::string input(random() % 200, '\0');
    // Mostly small bytes, so that lengths and opcodes are often plausible.
    for (char& c : input) c = static_cast<char>(random() % 4 != 0 ? random() % 3 : random() % 256);
    request r;
    while (!input.empty()) {
      const std::size_t piece = 1 + random() % input.size();
      parser.feed(std::string_view(input).substr(0, piece));
      input.erase(0, piece);
      while (parser.next(r) == parse_status::complete) {
        const layout form = layout_of(r.op);
        BOOST_TEST_REQUIRE((form.counted || r.keys.size() <= 1));
        for (const auto& key : r.keys) BOOST_TEST_REQUIRE(key.size() <= max_key_bytes);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_client_refuses_what_a_server_would_hang_up_on) {
  const auto refused = [](const request& r) {
    BOOST_CHECK_THROW(require_within_limits(r), parx::usage_error);
  };
  refused({.op = operation::get, .keys = {std::string(max_key_bytes + 1, 'k')}});
  refused({.op = operation::set, .keys = {"k"}, .values = {std::string(max_value_bytes + 1, 'v')}});
  refused({.op = operation::wait, .keys = std::vector<std::string>(max_keys + 1)});
  require_within_limits({.op = operation::set,
                         .keys = {std::string(max_key_bytes, 'k')},
                         .values = {std::string(max_value_bytes, 'v')}});
}
