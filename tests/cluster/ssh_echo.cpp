// ssh_echo HOST LINES [MIB]: sends lines to `cat` on a host, each after the answer to the one before, over the
// connection by which agents are started. It prints how many answers came, each within kPatience. An
// answer that libssh takes from the socket at the wrong moment used to be seen with the next one only,
// once in some ten thousand lines. Then it sends so many MiB while it reads them, as who keeps a log-in does: what either takes from
// the socket the other one must not wait for.

#include "base/loop/task_group.h"
#include "launcher/transport/agent_starter.h"
#include "launcher/transport/ssh_config.h"
#include "launcher/transport/ssh_login.h"

#include <fmt/core.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace dtrun::transport {
namespace {

constexpr std::chrono::seconds kPatience{10};

constexpr std::size_t kPieceBytes = 100'000;

char byte_at(std::size_t place) {
    return static_cast<char>('a' + place % 23);
}

asio::awaitable<void> send_all(Channel& channel, std::size_t bytes, Result<void>& done) {
    for (std::size_t sent = 0; sent < bytes && done;) {
        std::string piece(std::min(kPieceBytes, bytes - sent), '\0');
        for (char& byte : piece) byte = byte_at(sent++);
        const auto written = co_await channel.write(piece, after(kPatience));
        done = written;
    }
}

asio::awaitable<Result<void>> both_ways(Channel& channel, std::size_t bytes) {
    TaskGroup sending(co_await asio::this_coro::executor);
    Result<void> sent;
    sending.spawn(send_all(channel, bytes, sent));
    std::array<char, 16'384> buffer;
    Result<void> read;
    for (std::size_t come = 0; come < bytes && read;) {
        const auto n = co_await channel.read(buffer, after(kPatience));
        if (!n || *n == 0)
            read = fail(Errc::closed, "{} of {} bytes: {}", come, bytes,
                        n ? "the end" : n.error().message);
        for (std::size_t i = 0; read && i < *n; ++i, ++come)
            if (buffer[i] != byte_at(come))
                read = fail(Errc::internal, "byte {} is another one", come);
    }
    sending.stop();
    co_await sending.join();
    if (!read) co_return read;
    co_return sent;
}

asio::awaitable<Result<int>> answers(Pool& pool, std::string name, int wanted, int mib) {
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
    const auto passed = co_await both_ways(*login->channel, static_cast<std::size_t>(mib) << 20);
    if (!passed) co_return std::unexpected(passed.error());
    co_return wanted;
}

asio::awaitable<void> print_answers(Pool& pool, std::string host, int wanted, int mib,
                                    int& status) {
    const auto came = co_await answers(pool, std::move(host), wanted, mib);
    if (came) fmt::print("{} answers\n", *came);
    if (!came) fmt::print(stderr, "{}\n", came.error().message);
    status = came ? 0 : 1;
}

}  // namespace
}  // namespace dtrun::transport

int main(int argc, char** argv) {
    using namespace dtrun;
    if (argc < 3) return 2;
    const int mib = argc > 3 ? std::atoi(argv[3]) : 0;
    asio::io_context io;
    transport::Pool pool(1);
    int status = 1;
    asio::co_spawn(io, transport::print_answers(pool, argv[1], std::atoi(argv[2]), mib, status),
                   [](const std::exception_ptr& error) {
                       if (error) std::rethrow_exception(error);
                   });
    io.run();
    return status;
}
