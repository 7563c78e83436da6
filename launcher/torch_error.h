#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

/// The exception that ended a rank, as torch's @record writes it
/// (torch/distributed/elastic/multiprocessing/errors/error_handler.py).
struct TorchError {
    std::string message;                 ///< e.g. "RuntimeError: no such file"
    std::vector<std::string> traceback;  ///< lines; may be empty
};

/// \param json  a whole error file. \return nothing for anything else
std::optional<TorchError> parse_torch_error(std::string_view json);

}  // namespace dtrun
