#include "launcher/head/job_server.h"

#include "base/log.h"
#include "base/loop/waiting_news.h"

#include <fmt/format.h>
#include <functional>
#include <utility>

namespace dtrun::head {

JobServer::JobServer(asio::any_io_executor executor, DaemonOptions options, std::string job)
    : executor_(executor),
      job_(std::move(job)),
      daemon_(executor, std::move(options)),
      tasks_(executor) {}

Result<std::unique_ptr<JobServer>> JobServer::open(asio::any_io_executor executor,
                                                   const plan::DaemonTarget& target,
                                                   const plan::Options& options) {
    DaemonOptions daemon;
    daemon.secret = *target.serve;
    daemon.encrypt = options.encrypt;
    daemon.heartbeat_timeout = options.heartbeat_timeout;
    std::unique_ptr<JobServer> server(new JobServer(executor, std::move(daemon), target.job));
    const auto says = [](const Result<std::uint16_t>& port, std::string_view text) {
        return !port && port.error().message.find(text) != std::string::npos;
    };
    auto port = server->daemon_.listen({"::"}, target.port);
    if (says(port, "Address family"))
        port = server->daemon_.listen({"0.0.0.0"}, target.port);  // no IPv6
    if (says(port, "Address already in use")) {
        log::info("somebody listens at port {} already, and serves job {}", target.port,
                  target.job);
        return nullptr;
    }
    if (!port) return fail(port.error(), "serving job {}", target.job);
    server->daemon_.start();
    log::info("serves job {} for the other nodes at port {}", target.job, *port);
    return server;
}

void JobServer::interrupt(int signal) {
    tasks_.spawn(
        stop(fmt::format("the node that serves the job was ended there by signal {}", signal)));
}

asio::awaitable<void> JobServer::stop(std::string why) {
    co_await daemon_.stop(std::move(why));
}

asio::awaitable<void> JobServer::finish() {
    TaskGroup news(executor_);
    news.spawn(tell_of_others());
    co_await daemon_.idle();
    news.stop();
    co_await news.join();
    co_await tasks_.join();
}

/// Nothing is left to do here but this, which nobody sees.
asio::awaitable<void> JobServer::tell_of_others() {
    const std::function<void()> tell = [this] {
        log::warn("job {}: the ranks here have ended; waiting for the other nodes, which meet here",
                  job_);
    };
    co_await tell_while_waiting(tell);
}

}  // namespace dtrun::head
