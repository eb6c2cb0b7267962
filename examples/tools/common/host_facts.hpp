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

#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
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
};

/// A Python module that a job imports.
struct import_fact {
  std::string module;
  std::string version;
  std::string problem;  ///< the last line of the error; empty: it can be imported
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
  // What there is of everything.
  int cores = 0;                  ///< in the affinity mask
  double quota_cores = 0;         ///< of the control groups; 0: no quota
  std::string processor;          ///< "AVX2"
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

  [[nodiscard]] std::string to_line() const {
    const auto texts = [](const std::vector<std::string>& list) {
      json::array array;
      for (const std::string& each : list) array.emplace_back(each);
      return array;
    };
    json::array paths, modules;
    for (const path_fact& each : needs) {
      paths.emplace_back(json::object{{"path", each.path},
                                      {"problem", each.problem},
                                      {"size", each.size},
                                      {"is_argument", each.is_argument}});
    }
    for (const import_fact& each : imports) {
      modules.emplace_back(json::object{
          {"module", each.module}, {"version", each.version}, {"problem", each.problem}});
    }
    return json::dump(json::object{{"node", node},
                                   {"host", host},
                                   {"kernel", kernel},
                                   {"program", program},
                                   {"program_problem", program_problem},
                                   {"program_hash", program_hash},
                                   {"missing_libraries", texts(missing_libraries)},
                                   {"missing_instructions", texts(missing_instructions)},
                                   {"image", image},
                                   {"image_problem", image_problem},
                                   {"image_hash", image_hash},
                                   {"container_problem", container_problem},
                                   {"container_lacks", texts(container_lacks)},
                                   {"needs", paths},
                                   {"imports", modules},
                                   {"output", output},
                                   {"output_problem", output_problem},
                                   {"cores", cores},
                                   {"quota_cores", quota_cores},
                                   {"processor", processor},
                                   {"memory_mb", memory_mb},
                                   {"shm_mb", shm_mb},
                                   {"tmp_mb", tmp_mb},
                                   {"tmp", tmp},
                                   {"files", files},
                                   {"processes", processes},
                                   {"own_name_is", own_name_is},
                                   {"address", address},
                                   {"time_left_s", time_left_s},
                                   {"complete", complete},
                                   {"exchanged", exchanged},
                                   {"to_first_problem", to_first_problem},
                                   {"from_first_problem", from_first_problem},
                                   {"to_next_problem", to_next_problem},
                                   {"next", next},
                                   {"clock_ahead_s", clock_ahead_s},
                                   {"round_trip_s", round_trip_s}});
  }

  /// Throws json::error for a line that is not from to_line().
  [[nodiscard]] static host_facts from_line(std::string_view line) {
    const json::value text = json::parse(line);
    const auto texts = [&](std::string_view name) {
      std::vector<std::string> list;
      for (const json::value& each : text.at(name).elements()) list.push_back(each.text());
      return list;
    };
    const auto integer = [&](std::string_view name) { return text.at(name).as<std::int64_t>(); };
    host_facts facts;
    facts.node = text.at("node").text();
    facts.host = text.at("host").text();
    facts.kernel = text.at("kernel").text();
    facts.program = text.at("program").text();
    facts.program_problem = text.at("program_problem").text();
    facts.program_hash = text.at("program_hash").text();
    facts.missing_libraries = texts("missing_libraries");
    facts.missing_instructions = texts("missing_instructions");
    facts.image = text.at("image").text();
    facts.image_problem = text.at("image_problem").text();
    facts.image_hash = text.at("image_hash").text();
    facts.container_problem = text.at("container_problem").text();
    facts.container_lacks = texts("container_lacks");
    for (const json::value& each : text.at("needs").elements()) {
      facts.needs.push_back({each.at("path").text(), each.at("problem").text(),
                             each.at("size").as<std::uint64_t>(),
                             each.at("is_argument").as<bool>()});
    }
    for (const json::value& each : text.at("imports").elements()) {
      facts.imports.push_back(
          {each.at("module").text(), each.at("version").text(), each.at("problem").text()});
    }
    facts.output = text.at("output").text();
    facts.output_problem = text.at("output_problem").text();
    facts.cores = text.at("cores").as<int>();
    facts.quota_cores = text.at("quota_cores").as<double>();
    facts.processor = text.at("processor").text();
    facts.memory_mb = integer("memory_mb");
    facts.shm_mb = integer("shm_mb");
    facts.tmp_mb = integer("tmp_mb");
    facts.tmp = text.at("tmp").text();
    facts.files = integer("files");
    facts.processes = integer("processes");
    facts.own_name_is = text.at("own_name_is").text();
    facts.address = text.at("address").text();
    facts.time_left_s = integer("time_left_s");
    facts.complete = text.at("complete").as<bool>();
    facts.exchanged = text.at("exchanged").as<bool>();
    facts.to_first_problem = text.at("to_first_problem").text();
    facts.from_first_problem = text.at("from_first_problem").text();
    facts.to_next_problem = text.at("to_next_problem").text();
    facts.next = text.at("next").text();
    facts.clock_ahead_s = text.at("clock_ahead_s").as<double>();
    facts.round_trip_s = text.at("round_trip_s").as<double>();
    return facts;
  }
};

/// Slurm passes the output of a task on in messages of 1024 bytes, and those of several tasks mix.
inline constexpr std::size_t most_bytes_of_a_line = 900;

/// to_line() in lines that srun keeps whole: "facts NODE SERIAL PART PARTS text". `serial`: grows
/// with what is known of the node.
[[nodiscard]] inline std::string to_lines(const host_facts& facts, int serial) {
  const std::string text = facts.to_line();
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
        found.push_back(host_facts::from_line(text));
        break;
      } catch (const json::error&) {
        // Of another version.
      }
    }
  }
  return found;
}

}  // namespace parx::slurm
