#pragma once

#include "base/result.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace dtrun {

/// What is read of a program.
enum class Captured : std::uint8_t {
    out,        ///< its standard output; its standard error is ours
    out_alone,  ///< its standard output; its standard error is dropped
    both,       ///< both, in one text
};

struct CommandOutput {
    std::string text;
    int status = 0;  ///< its exit code; 128+n after signal n
};

/// Runs a program, found in PATH, without standard input, until it has closed what we read and has
/// ended. Blocks for at most `limit`; what is left of it then is killed, with its children.
/// A signal that ends us ends them too.
/// Errc: not_found (no such program), timed_out, invalid_input (more than 16 MiB), internal
Result<CommandOutput> command_output(const std::vector<std::string>& words, Captured captured,
                                     std::chrono::milliseconds limit = std::chrono::seconds(10));

}  // namespace dtrun
