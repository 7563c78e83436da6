#pragma once

#include "base/loop/asio.h"
#include "base/result.h"
#include "hostfiles/host.h"
#include "launcher/transport/dial.h"
#include "launcher/transport/login_gate.h"

#include <chrono>
#include <string>
#include <vector>

namespace dtrun::commands {

struct SurveyOptions {
    bool resolve = false;                               ///< look up every host
    bool connect = false;                               ///< also connect to its ssh port
    int ssh_port = 22;                                  ///< of hosts that name none
    std::chrono::milliseconds connect_timeout{10'000};  ///< for each host
};

/// Looks up many hosts and connects to them, side by side.
///
/// Thread: run() blocks its caller's; name look-ups have up to LoginGate::kLoginsMax more. One that hangs
/// delays the destructor.
class HostSurvey {
public:
    /// \param hosts  outlives the survey
    HostSurvey(const HostList& hosts, SurveyOptions options);

    /// For each host, in the order of `hosts`: a numeric address under which others can reach it
    /// (IPv4 rather than IPv6; with `resolve`, else maybe empty), or why it cannot be reached. This
    /// machine needs no connection. Errc: not_found, unreachable, timed_out
    std::vector<Result<std::string>> run();

private:
    asio::awaitable<void> visit(const Host& host, Result<std::string>& answer);
    asio::awaitable<Result<std::string>> ask(const Host& host);

    const HostList& hosts_;
    SurveyOptions options_;
    asio::io_context io_{1};
    /// A thread for each look-up, whose time would run while it waited for one.
    transport::Pool pool_{transport::LoginGate::kLoginsMax};
    transport::LoginGate gate_{io_.get_executor(), transport::LoginGate::kLoginsMax};
    std::vector<Result<std::string>> answers_;
};

}  // namespace dtrun::commands
