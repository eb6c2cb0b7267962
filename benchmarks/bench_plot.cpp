// bench-plot: size against bandwidth, drawn as by parx-bench --plot, from several programs'
// results.
//
//   bench-plot "all_reduce, 4 ranks" "in place, float" < lines > plot.svg
//
// Each line of standard input is: name <tab> size in bytes <tab> bus bandwidth in GB/s. Points are
// joined in the order of the lines.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <bench/plot.hpp>

int main(int argc, char** argv) {
  static constexpr int wrong_usage = 2;
  if (argc != 3) {
    std::fputs("usage: bench-plot TITLE SUBTITLE < \"name<tab>bytes<tab>GB/s\" lines\n", stderr);
    return wrong_usage;
  }
  std::vector<bench::plot_line> lines;
  std::string name;
  bench::plot_point point;
  while (std::getline(std::cin, name, '\t') && std::cin >> point.bytes >> point.bandwidth) {
    std::cin.ignore();  // the end of the line
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const bench::plot_line& each) { return each.name == name; });
    if (line == lines.end()) line = lines.insert(lines.end(), {name, {}});
    line->points.push_back(point);
  }
  fmt::print("{}", bench::draw_plot(argv[1], argv[2], lines));
  return 0;
}
