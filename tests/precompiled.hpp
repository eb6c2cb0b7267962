// What most tests spend their compilation on: the libraries, once for all of them. Not parx's own
// headers: the compiler would instantiate for each test what their inline functions use, which
// takes longer than parsing.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <Eigen/Core>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
