// A program of two translation units that both include everything: nothing in a header may be
// defined twice, and what is inline must be one and the same object in both.
#include <parx.hpp>

#include <cstdio>

const void* logger_of_the_other_unit();
const void* category_of_the_other_unit();

int main() {
  const bool same = logger_of_the_other_unit() == &parx::logger::instance() &&
                    category_of_the_other_unit() == &parx::category();
  std::puts(same ? "one program" : "the units have different objects");
  return same ? 0 : 1;
}
