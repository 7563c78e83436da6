#pragma once

#include "base/result.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

/// Which output of a program is captured.
enum class Captured : std::uint8_t {
    out,        ///< its standard output; its standard error is ours
    out_alone,  ///< its standard output; its standard error is dropped
    both,       ///< both, in one text
};

struct CommandOutput {
    std::string text;
    int status = 0;  ///< its exit code; 128+n after signal n
};

/// Runs a program, found in PATH, without standard input, until it has closed the captured output
/// and has exited. Blocks for at most `limit`, or until a signal comes that would end this process.
/// Whatever is left of its process group is killed then.
/// Errc: not_found (no such program), timed_out, cancelled (a signal), invalid_input (more than 16
/// MiB), internal
Result<CommandOutput> command_output(const std::vector<std::string>& words, Captured captured,
                                     std::chrono::milliseconds limit = std::chrono::seconds(10));

/// Whether it is a file that we may execute.
bool is_program(const std::string& path);

/// Whether one of the folders, which ':' separates, has a program of that name.
bool is_on_path(std::string_view name, std::string_view path);

}  // namespace dtrun
