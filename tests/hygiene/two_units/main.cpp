// A program of two translation units that both include everything: nothing in a header may be
// defined twice, and what is inline must be one and the same object in both.
#include <cstdio>

extern "C" const void* logger_of_the_unit();
extern "C" const void* category_of_the_unit();
extern "C" const void* logger_of_the_other_unit();
extern "C" const void* category_of_the_other_unit();

int main() {
  const bool same = logger_of_the_other_unit() == logger_of_the_unit() &&
                    category_of_the_other_unit() == category_of_the_unit();
  std::puts(same ? "one program" : "the units have different objects");
  return same ? 0 : 1;
}
