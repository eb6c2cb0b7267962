// A translation unit that includes everything, header-only. The program has it twice, under two
// names.
#include <parx.hpp>

extern "C" const void* logger_of_the_unit() { return &parx::logger::instance(); }
extern "C" const void* category_of_the_unit() { return &parx::category(); }
