#include <parx.hpp>

const void* logger_of_the_other_unit();
const void* category_of_the_other_unit();

const void* logger_of_the_other_unit() { return &parx::logger::instance(); }
const void* category_of_the_other_unit() { return &parx::category(); }
