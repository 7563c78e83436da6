// ssh_echo HOST LINES: sends lines to `cat` on a host, each after the answer to the one before, over the
// connection by which agents are started. It prints how many answers came, each within kPatience. An
// answer that libssh takes from the socket at the wrong moment used to be seen with the next one only,
// once in some ten thousand lines.

#include "launcher/transport/agent_starter.h"
#include "launcher/transport/ssh_channel.h"

#include <fmt/core.h>
#include <cstdio>
#include <cstdlib>

namespace dtrun::transport {
namespace {

constexpr std::chrono::seconds kPatience{10};

asio::awaitable<Result<int>> answers(Pool& pool, std::string name, int wanted) {
    KnownHostsFiles files;
    Host host;
    host.name = std::move(name);
    const auto config = SshConfig::read();
    if (!config) co_return std::unexpected(config.error());
    const SshSettings settings = config->find(host, {});
    const auto phase = [](const char*) {};
    auto login = co_await ssh_login(pool, files, settings, "", "exec cat", after(kPatience), phase);
    if (!login) co_return std::unexpected(login.error());
    if (!login->channel) co_return std::unexpected(login->refused);
    LineReader lines(*login->channel);
    for (int sent = 0; sent < wanted; ++sent) {
        const std::string line = fmt::format("line {}", sent);
        const auto written = co_await login->channel->write(line + "\n", after(kPatience));
        if (!written) co_return fail(written.error(), "writing {}", line);
        const auto answer = co_await lines.next(after(kPatience));
        if (!answer) co_return fail(answer.error(), "answer to {}", line);
        if (*answer != line) co_return fail(Errc::internal, "{} came back as {}", line, *answer);
    }
    co_return wanted;
}

asio::awaitable<void> print_answers(Pool& pool, std::string host, int wanted, int& status) {
    const auto came = co_await answers(pool, std::move(host), wanted);
    if (came) fmt::print("{} answers\n", *came);
    if (!came) fmt::print(stderr, "{}\n", came.error().message);
    status = came ? 0 : 1;
}

}  // namespace
}  // namespace dtrun::transport

int main(int argc, char** argv) {
    using namespace dtrun;
    if (argc != 3) return 2;
    asio::io_context io;
    transport::Pool pool(1);
    int status = 1;
    asio::co_spawn(io, transport::print_answers(pool, argv[1], std::atoi(argv[2]), status),
                   [](const std::exception_ptr& error) {
                       if (error) std::rethrow_exception(error);
                   });
    io.run();
    return status;
}
