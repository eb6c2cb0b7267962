// link_proof: how two ranks of a job with a secret prove on a new connection that they are of it.
//
// The challenges are exchanged beforehand, in the ranks' records in the job's store, which admits
// only members: so no link waits for a round trip before it can send. The connecting rank signs its
// hello, which names job ranks, group, purpose and its count of hellos to that peer, together with
// the peer's challenge; the accepting rank signs what it has heard. A challenge is made for each
// start of a process, and each count is taken once: a recorded hello is worth nothing.
// Pure but for the key.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include <parx/core/job_key.hpp>
#include <parx/transport/detail/frame.hpp>

namespace parx::inline PARX_ABI::detail {

[[nodiscard]] inline mac proof_of_hello(const job_key& key, link_hello greeting,
                                        std::string_view challenge) {
  greeting.proof = {};
  return key.sign("parx link", {job_key::view(greeting), challenge});
}
/// What the accepting rank sends first on a TCP connection.
[[nodiscard]] inline mac proof_of_welcome(const job_key& key, const link_hello& greeting) {
  return key.sign("parx link accepted", {job_key::view(greeting)});
}

/// The hellos that have been heard of each rank, by their counts. Those of a rank follow each
/// other, so that hardly more than the next one is kept.
class heard_hellos {
 public:
  /// False where this one was heard before.
  [[nodiscard]] bool take(int rank, std::uint64_t count) {
    one_rank& heard = ranks_[rank];
    if (count < heard.next || !heard.beyond.insert(count).second) return false;
    while (!heard.beyond.empty() && *heard.beyond.begin() == heard.next) {
      heard.beyond.erase(heard.beyond.begin());
      ++heard.next;
    }
    return true;
  }

 private:
  struct one_rank {
    std::uint64_t next = 0;
    std::set<std::uint64_t> beyond;
  };
  std::map<int, one_rank> ranks_;
};

}  // namespace parx::detail
