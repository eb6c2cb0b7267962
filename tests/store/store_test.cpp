#include <parx/store.hpp>

#include <store/store_claims.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <boost/test/unit_test.hpp>

namespace {

using namespace std::chrono_literals;
using store_claims::soon;

// A path of its own for each test, removed at its end.
struct temporary_file {
  std::string path;
  temporary_file() {
    char name[] = "/tmp/parx-store-test-XXXXXX";
    const int file = ::mkstemp(name);
    ::close(file);
    path = name;
  }
  ~temporary_file() { std::filesystem::remove(path); }
};

void claims_over_tcp(parx::store_dialect dialect) {
  parx::tcp_store_server server({.legacy_dialect = dialect == parx::store_dialect::torch_2_1
                                                       ? parx::store_dialect::torch_2_1
                                                       : parx::store_dialect::torch_1_13});
  parx::tcp_store a({.port = server.port(), .dialect = dialect});
  parx::tcp_store b({.port = server.port(), .dialect = dialect});
  store_claims::hold_for({a, b});
}

}  // namespace

BOOST_AUTO_TEST_CASE(hash_store_does_what_every_store_must) {
  parx::hash_store store;
  store_claims::hold_for({store, store});
}

BOOST_AUTO_TEST_CASE(prefix_store_does_what_every_store_must) {
  parx::hash_store base;
  parx::prefix_store a("job/1", base);
  parx::prefix_store b("job/1", base);
  store_claims::hold_for({a, b});
}

BOOST_AUTO_TEST_CASE(file_store_does_what_every_store_must) {
  const temporary_file file;
  parx::file_store a({.path = file.path});
  parx::file_store b({.path = file.path});
  store_claims::hold_for({a, b});
}

BOOST_AUTO_TEST_CASE(tcp_store_does_what_every_store_must_in_the_dialect_of_torch_1_13) {
  claims_over_tcp(parx::store_dialect::torch_1_13);
}
BOOST_AUTO_TEST_CASE(tcp_store_does_what_every_store_must_in_the_dialect_of_torch_2_1) {
  claims_over_tcp(parx::store_dialect::torch_2_1);
}
BOOST_AUTO_TEST_CASE(tcp_store_does_what_every_store_must_in_the_dialect_of_torch_2_2) {
  claims_over_tcp(parx::store_dialect::torch_2_2);
}
BOOST_AUTO_TEST_CASE(tcp_store_does_what_every_store_must_in_the_dialect_of_torch_2_5) {
  claims_over_tcp(parx::store_dialect::torch_2_5);
}

BOOST_AUTO_TEST_CASE(prefixes_keep_users_apart_and_nest_from_the_inside_out) {
  parx::hash_store base;
  parx::prefix_store inner("pfx", base);
  parx::prefix_store outer("outer", inner);
  outer.set("a", "deep");
  BOOST_TEST(base.get("pfx/outer/a") == "deep");
  inner.set("a", "shallow");
  BOOST_TEST(outer.get("a") == "deep");
  BOOST_TEST(base.num_keys() == 2);
}

BOOST_AUTO_TEST_CASE(a_call_without_a_deadline_has_the_default_timeout) {
  parx::hash_store store;
  BOOST_TEST((store.default_timeout() == 300s));
  store.set_default_timeout(30ms);
  const auto text = store_claims::message_of([&] { (void)store.get("x"); }, parx::errc::timeout);
  BOOST_TEST(
      text ==
      "store get of \"x\" at hash_store of this process failed after 0.0 s: nobody set \"x\".");
}

BOOST_AUTO_TEST_CASE(file_store_writes_the_records_of_pytorchs_file_store) {
  const temporary_file file;
  parx::file_store store({.path = file.path});
  store.set("k", "hello");
  store.delete_key("k");
  std::ifstream in(file.path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::string expected("\2\0\0\0/k\5\0\0\0hello\3\0\0\0-/k\0\0\0\0", 26);
  BOOST_TEST((bytes == expected));
}

BOOST_AUTO_TEST_CASE(the_last_of_all_processes_removes_the_file) {
  const temporary_file file;
  {
    parx::file_store last({.path = file.path, .world_size = 2});
    { const parx::file_store first({.path = file.path, .world_size = 2}); }
    BOOST_TEST(std::filesystem::exists(file.path));
    last.set("x", "y", soon());
  }
  BOOST_TEST(!std::filesystem::exists(file.path));
}

BOOST_AUTO_TEST_CASE(a_file_that_is_no_store_is_refused_and_left_alone) {
  const temporary_file file;
  std::ofstream(file.path) << "this is a shopping list";
  parx::file_store store({.path = file.path});
  const auto text =
      store_claims::message_of([&] { store.set("k", "v", soon()); }, parx::errc::bad_data);
  BOOST_TEST(text.find("no store file") != std::string::npos);
  std::ifstream in(file.path);
  BOOST_TEST((std::string{std::istreambuf_iterator<char>(in), {}} == "this is a shopping list"));
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_opened_is_named) {
  parx::file_store store({.path = "/nonexistent/folder/file"});
  const auto text = store_claims::message_of([&] { store.set("k", "v", soon()); }, parx::errc::io);
  BOOST_TEST(
      text ==
      "store set of \"k\" at file_store /nonexistent/folder/file failed after 0.0 s: the file "
      "cannot be opened: No such file or directory (errno 2).");
}
