#pragma once

#include "base/result.h"
#include "rendezvous/wire/rank_messages.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::report {

/// The exception that ended a rank, as torch's @record writes it
/// (torch/distributed/elastic/multiprocessing/errors/error_handler.py).
struct TorchError {
    std::string message;                 ///< e.g. "RuntimeError: no such file"
    std::vector<std::string> traceback;  ///< lines; may be empty
};

/// \param json  a whole error file. \return nothing for anything else
std::optional<TorchError> parse_torch_error(std::string_view json);

/// What torchrun leaves for its own caller: the file of the first rank that failed, with that rank's
/// exit code in it, negative for a signal. \return nothing where the rank has left no such file
std::optional<std::string> torch_error_for_caller(const Exited& first);

/// Writes torch_error_for_caller() to `file`, which the caller's TORCHELASTIC_ERROR_FILE names.
/// Errc: invalid_input, internal; the message names the file
Result<void> leave_torch_error(const std::string& file, const Exited& first);

}  // namespace dtrun::report
