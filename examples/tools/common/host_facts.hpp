// host_facts: what `parx_doctor host` finds out about a node, as JSON, and on its way through srun.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/json_fields.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

/// A path that a job needs on each node.
struct path_fact {
  std::string path;
  std::string problem;     ///< errno's text; empty: it can be read
  std::uint64_t size = 0;  ///< of a file in bytes, of a folder its entries
  /// Only an argument of the program names it, so perhaps not all nodes need it.
  bool is_argument = false;

  static void for_each_field(auto& self, auto&& visit) {
    visit("path", self.path);
    visit("problem", self.problem);
    visit("size", self.size);
    visit("is_argument", self.is_argument);
  }
};

/// A Python module that a job imports.
struct import_fact {
  std::string module;
  std::string version;
  std::string problem;  ///< the last line of the error; empty: it can be imported

  static void for_each_field(auto& self, auto&& visit) {
    visit("module", self.module);
    visit("version", self.version);
    visit("problem", self.problem);
  }
};

struct host_facts {
  std::string node;  ///< Slurm's name of it
  std::string host;
  std::string kernel;
  // The program.
  std::string program;                            ///< as given; empty: none
  std::string program_problem;                    ///< why it cannot be started; empty: it can
  std::string program_hash;                       ///< of its bytes
  std::vector<std::string> missing_libraries;     ///< "libfmt.so.9", "GLIBC_2.36"
  std::vector<std::string> missing_instructions;  ///< that it was compiled for
  // The container.
  std::string image;                         ///< as given; empty: none
  std::string image_problem;                 ///< why it cannot be read; empty: it can
  std::string image_hash;                    ///< of its size, its header and its end
  std::string container_problem;             ///< why none can be started; empty: one can
  std::vector<std::string> container_lacks;  ///< what the job needs and it does not see
  std::vector<path_fact> needs;
  std::vector<import_fact> imports;
  std::string output;          ///< the folder to write into; empty: none
  std::string output_problem;  ///< empty: it can be written
  // Resources.
  int cores = 0;                  ///< in the affinity mask
  double quota_cores = 0;         ///< of the control groups; 0: no quota
  std::string processor;          ///< "AVX2"
  std::string why_not_amx;        ///< for products of bfloat16; empty: it can be used
  std::int64_t memory_mb = 0;     ///< available, within the control group's limit
  std::int64_t shm_mb = 0;        ///< free in /dev/shm
  std::int64_t tmp_mb = 0;        ///< free in TMPDIR
  std::string tmp;                ///< that folder
  std::int64_t files = 0;         ///< the limit on open files, hard
  std::int64_t processes = 0;     ///< the limit on processes, hard; -1: none
  std::string own_name_is;        ///< the address that its own name resolves to; empty: none
  std::string address;            ///< that other nodes would be told
  std::int64_t time_left_s = -1;  ///< of the job; -1: not known
  bool complete = false;          ///< imports and the container were tried as well
  // From the exchange with the first node.
  bool exchanged = false;          ///< it took part to the end
  std::string to_first_problem;    ///< why it cannot connect to the first node's port
  std::string from_first_problem;  ///< why the first node cannot connect to it
  std::string to_next_problem;     ///< why it cannot connect to the next node
  std::string next;                ///< that node
  double clock_ahead_s = 0;        ///< of the first node's clock
  double round_trip_s = 0;

  static void for_each_field(auto& self, auto&& visit) {
    visit("node", self.node);
    visit("host", self.host);
    visit("kernel", self.kernel);
    visit("program", self.program);
    visit("program_problem", self.program_problem);
    visit("program_hash", self.program_hash);
    visit("missing_libraries", self.missing_libraries);
    visit("missing_instructions", self.missing_instructions);
    visit("image", self.image);
    visit("image_problem", self.image_problem);
    visit("image_hash", self.image_hash);
    visit("container_problem", self.container_problem);
    visit("container_lacks", self.container_lacks);
    visit("needs", self.needs);
    visit("imports", self.imports);
    visit("output", self.output);
    visit("output_problem", self.output_problem);
    visit("cores", self.cores);
    visit("quota_cores", self.quota_cores);
    visit("processor", self.processor);
    visit("why_not_amx", self.why_not_amx);
    visit("memory_mb", self.memory_mb);
    visit("shm_mb", self.shm_mb);
    visit("tmp_mb", self.tmp_mb);
    visit("tmp", self.tmp);
    visit("files", self.files);
    visit("processes", self.processes);
    visit("own_name_is", self.own_name_is);
    visit("address", self.address);
    visit("time_left_s", self.time_left_s);
    visit("complete", self.complete);
    visit("exchanged", self.exchanged);
    visit("to_first_problem", self.to_first_problem);
    visit("from_first_problem", self.from_first_problem);
    visit("to_next_problem", self.to_next_problem);
    visit("next", self.next);
    visit("clock_ahead_s", self.clock_ahead_s);
    visit("round_trip_s", self.round_trip_s);
  }
};

/// Slurm passes the output of a task on in messages of 1024 bytes, and those of several tasks mix.
inline constexpr std::size_t most_bytes_of_a_line = 900;

/// The facts as JSON, in lines that srun keeps whole: "facts NODE SERIAL PART PARTS text".
/// `serial`: grows with what is known of the node.
[[nodiscard]] inline std::string to_lines(const host_facts& facts, int serial) {
  const std::string text = json::dump(json::to_json(facts));
  const std::size_t parts = (text.size() + most_bytes_of_a_line - 1) / most_bytes_of_a_line;
  std::string lines;
  for (std::size_t i = 0; i < parts; ++i) {
    lines += formatted("facts {} {} {} {} {}\n", facts.node, serial, i, parts,
                       text.substr(i * most_bytes_of_a_line, most_bytes_of_a_line));
  }
  return lines;
}

/// The last facts of each node among the lines of all of them, and of others, in any order.
[[nodiscard]] inline std::vector<host_facts> facts_among(std::string_view output) {
  struct pieces {
    std::size_t parts = 0;
    std::map<std::size_t, std::string> text;
  };
  std::map<std::string, std::map<int, pieces>> nodes;
  for (std::string_view line : parx::detail::split_at(output, '\n')) {
    std::vector<std::string_view> words;
    for (int i = 0; i < 5; ++i) {
      const auto end = std::min(line.find(' '), line.size());
      words.push_back(line.substr(0, end));
      line.remove_prefix(std::min(end + 1, line.size()));
    }
    const auto serial = parx::detail::parse_number<int>(words[2]);
    const auto part = parx::detail::parse_number<std::size_t>(words[3]);
    const auto parts = parx::detail::parse_number<std::size_t>(words[4]);
    if (words[0] != "facts" || !serial || !part || !parts) continue;  // a prolog's line
    pieces& all = nodes[std::string(words[1])][*serial];
    all.parts = *parts;
    all.text[*part] = line;
  }
  std::vector<host_facts> found;
  for (const auto& [node, serials] : nodes) {
    for (auto each = serials.rbegin(); each != serials.rend(); ++each) {
      if (each->second.text.size() != each->second.parts) continue;
      std::string text;
      for (const auto& [part, piece] : each->second.text) text += piece;
      try {
        found.push_back(json::from_json<host_facts>(json::parse(text)));
        break;
      } catch (const json::error&) {
        // Of another version.
      }
    }
  }
  return found;
}

}  // namespace parx::slurm
