// link_proof: mutual authentication of two ranks on a new connection, in a job with a secret.
//
// The challenges are exchanged in advance, in the ranks' records in the job's store, which admits
// only members of the job, so that no link waits for a round trip before it can send. The
// connecting rank signs its hello (job rank, group, purpose, its count of hellos to that peer)
// together with the peer's challenge. The accepting rank signs the hello that it has received. Each
// start of a process makes a new challenge, and each count is accepted once, so a recorded hello
// cannot be replayed. No I/O.
#pragma once

#include <cstdint>
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
/// The accepting rank sends it first on a TCP connection.
[[nodiscard]] inline mac proof_of_welcome(const job_key& key, const link_hello& greeting) {
  return key.sign("parx link accepted", {job_key::view(greeting)});
}

/// The counts of the hellos received from each rank. They arrive almost in order, so that little
/// more than the next expected one is stored.
class received_hellos {
 public:
  /// Records a hello; false where it was received before (a replay).
  [[nodiscard, gnu::cold]] bool take(int rank, std::uint64_t count) {
    one_rank& known = ranks_[rank];
    if (count < known.next || !known.beyond.insert(count).second) return false;
    while (!known.beyond.empty() && *known.beyond.begin() == known.next) {
      known.beyond.erase(known.beyond.begin());
      ++known.next;
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
