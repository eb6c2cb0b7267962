// The speed of products of matrices, for parx_plan: by code for this machine's vector instructions,
// in a program that otherwise runs on any processor. So the caller checks first what it needs.
#pragma once

namespace examples {

/// The instructions that measured_flops() uses, as parx/core/compiled_for.hpp tells them.
extern const char* const needed_by_measured_flops;

/// Operations per second of a product of two matrices on one thread of this machine.
[[nodiscard]] double measured_flops();

}  // namespace examples
