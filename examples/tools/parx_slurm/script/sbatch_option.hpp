// sbatch_option: an option in a script for sbatch, "#SBATCH --job-name=train". Pure.
//
// sbatch splits such a line itself (get_argument() in its opt.c): white space ends a word, "#"
// begins a comment, both kinds of quotes group, a backslash takes the next character as it is, and
// nothing at all stands for a line break.
#pragma once

#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

/// The line, with its line break. Throws usage_error where no line of sbatch can have the value.
[[nodiscard]] std::string sbatch_option(std::string_view name, std::string_view value);

/// `text` as the name of a job and of its log: with "_" for what a log's name cannot have.
[[nodiscard]] std::string job_name_of(std::string_view text);

}  // namespace parx::slurm
