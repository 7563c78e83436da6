#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "launcher/output/output.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::output {

/// Tells the user, while hosts connect, how many have and what the others are waiting for: one live
/// line on a terminal, a plain line now and then elsewhere.
///
/// Thread: the executor's. Lifetime: `output` outlives it; handlers must not run any more when it is
/// destroyed.
class Progress {
public:
    Progress(asio::any_io_executor executor, Output& output, PerHost<std::string> hosts);

    void host_added(std::string name);
    /// \param limit  " (until 18:45, --start-timeout)", or nothing: behind the names
    void start(std::string limit);
    /// \param what  what the host is doing now, e.g. "ssh authentication"
    void host_phase(HostId host, const char* what);
    void host_ready(HostId host);
    void host_failed(HostId host);
    void finish();  ///< removes the live line; idempotent

private:
    void tick();
    std::string line() const;

    Timer timer_;
    Output& output_;
    PerHost<std::string> names_;
    PerHost<const char*> phases_;  ///< nullptr: ready or failed
    std::size_t ready_ = 0;
    std::size_t failed_ = 0;
    std::string limit_;
    Deadline started_;
    bool is_told_ = false;
    bool finished_ = true;
};

}  // namespace dtrun::output
