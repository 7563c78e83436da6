#pragma once

#include "base/ids.h"
#include "base/loop/asio.h"
#include "base/result.h"
#include "launcher/plan/options.h"
#include "launcher/watch/http_server.h"

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <string>

namespace dtrun::watch {

/// The key of a daemon's page: who has the daemon's secret can make it, and from it nobody can make the secret.
std::string page_key(const Secret& secret);

/// `dtrun serve --web`: the page with the daemon's jobs, and at /metrics its numbers for Prometheus.
///
/// Thread: the executor's. Lifetime: join() before destruction, unless the process ends.
class DaemonPage {
public:
    /// \param status  the daemon's, as JSON
    /// Errc: invalid_input
    static Result<std::unique_ptr<DaemonPage>> open(asio::any_io_executor executor,
                                                    const plan::ListenAddress& at, std::string key,
                                                    std::function<std::string()> status);

    std::string place() const { return server_->place(); }
    asio::awaitable<void> join() { return server_->join(); }

private:
    DaemonPage(std::string key, std::function<std::string()> status)
        : key_(std::move(key)), status_(std::move(status)) {}
    asio::awaitable<HttpReply> answer(HttpRequest request);

    std::string key_;
    std::function<std::string()> status_;
    std::unique_ptr<HttpServer> server_;
};

/// What the page needs of a daemon's status: `jobs`, each as page_view() has it, as far as a daemon knows it; one that
/// gathers has the slots of its members in the place of ranks. Pure. \param status  JSON that a daemon has made
boost::json::object daemon_view(const std::string& status);

}  // namespace dtrun::watch
