// ssh_hosts: the hosts on which parxrun starts itself by ssh: --hosts and --hostfile. Pure.
//
// Understood are Open MPI's lines (`n1 slots=4`) and MPICH's (`n1:4`). A host that is named again
// has the sum of its slots, as in both.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

struct ssh_host {
  std::string name;            ///< as ssh takes it: n1, user@n1, an alias of ~/.ssh/config
  std::optional<int> ranks{};  ///< its slots, where they are given

  /// The name without the user.
  [[nodiscard]] std::string host() const { return name.substr(name.find('@') + 1); }

  friend bool operator==(const ssh_host&, const ssh_host&) = default;
};

/// Of --hosts: "n1,n2:4,user@n3". Throws usage_error.
[[nodiscard]] std::vector<ssh_host> parse_hosts(std::string_view text);

/// Of the text of a host file; `path` is for the errors. Throws usage_error.
[[nodiscard]] std::vector<ssh_host> parse_hostfile(std::string_view text, std::string_view path);

}  // namespace parx
