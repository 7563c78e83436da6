#pragma once

#include "launcher/transport/channel.h"

#include <memory>
#include <string>
#include <vector>

namespace dtrun::transport {

/// A program on this machine.
class Process : public Channel {
public:
    virtual void close_input() = 0;  ///< the program reads end of file; idempotent
    virtual void signal(int signal) = 0;
    /// take_errors(), but what is not yet a whole line stays.
    virtual std::string take_error_lines() = 0;
};

/// Starts a program on this machine, in a session of its own so that the terminal's signals do not
/// reach it. \param env  "NAME=value"; the whole environment
/// \param death_signal  that it gets when this process ends; 0: none
/// Errc: not_found, denied, internal
Result<std::unique_ptr<Process>> start_process(asio::any_io_executor executor,
                                               const std::vector<std::string>& argv,
                                               const std::vector<std::string>& env,
                                               int death_signal = 0);

}  // namespace dtrun::transport
