#include "launcher/transport/lent_agent.h"

#include "base/fd.h"
#include "base/loop/accept.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dtrun::transport {

/// A connection, and ours to the agent for it.
struct LentAgent::Loan {
    Loan(Unix::socket borrower, const asio::any_io_executor& executor)
        : theirs(std::move(borrower)), agent(executor) {}
    Unix::socket theirs, agent;
};

LentAgent::LentAgent(asio::any_io_executor executor, std::string agent)
    : executor_(std::move(executor)),
      agent_(std::move(agent)),
      acceptor_(executor_),
      tasks_(executor_) {}

Result<std::unique_ptr<LentAgent>> LentAgent::lend(asio::any_io_executor executor,
                                                   std::string agent) {
    if (agent.size() >= sizeof(sockaddr_un::sun_path))
        return fail(Errc::internal, "{}: too long for a socket's name", agent);
    std::unique_ptr<LentAgent> lent(new LentAgent(std::move(executor), std::move(agent)));
    if (auto listens = lent->listen(); !listens) return std::unexpected(listens.error());
    lent->tasks_.spawn(lent->accept());
    return lent;
}

/// In a folder of its own, as those of ssh-agent: only our user can enter it.
Result<void> LentAgent::listen() {
    for (const char* const parent : {"/tmp", "/dev/shm"}) {
        std::string folder = fmt::format("{}/dtrun-ssh-XXXXXX", parent);
        if (::mkdtemp(folder.data()) == nullptr) continue;
        folder_ = folder;
        break;
    }
    if (folder_.empty())
        return fail(Errc::internal, "no folder in /tmp or /dev/shm: {}", std::strerror(errno));
    path_ = folder_ + "/agent";
    boost::system::error_code error;
    acceptor_.open(Unix(), error);
    if (!error) close_on_exec(acceptor_.native_handle());
    if (!error) acceptor_.bind(Unix::endpoint(path_), error);
    if (!error) acceptor_.listen(SOMAXCONN, error);
    if (error) return fail(Errc::internal, "{}: {}", path_, error.message());
    return {};
}

void LentAgent::remove() noexcept {
    if (folder_.empty()) return;
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
    folder_.clear();
    path_.clear();
}

asio::awaitable<void> LentAgent::accept() {
    AcceptTrouble trouble("the socket that lends your ssh-agent");
    for (;;) {
        auto socket = co_await accept_next(acceptor_, trouble);
        if (!socket) co_return;
        if (foreign_user(socket->native_handle())) continue;
        const auto loan = std::make_shared<Loan>(std::move(*socket), executor_);
        // An agent that waits for its user accepts nobody meanwhile: asynchronous, so that this fails instead of waiting.
        const auto [error] = co_await loan->agent.async_connect(Unix::endpoint(agent_), use_tuple);
        if (error) continue;
        close_on_exec(loan->agent.native_handle());
        tasks_.spawn(pass(loan, true));
        tasks_.spawn(pass(loan, false));
    }
}

/// One direction, to its end, which is that of both.
asio::awaitable<void> LentAgent::pass(std::shared_ptr<Loan> loan, bool to_agent) {
    Unix::socket& from = to_agent ? loan->theirs : loan->agent;
    Unix::socket& to = to_agent ? loan->agent : loan->theirs;
    std::array<char, 4096> bytes;
    for (;;) {
        const auto buffer = asio::buffer(bytes);
        const auto [error, n] = co_await from.async_read_some(buffer, use_tuple);
        if (error) break;
        const auto piece = asio::buffer(bytes, n);
        const auto [failed, written] = co_await asio::async_write(to, piece, use_tuple);
        if (failed) break;
    }
    boost::system::error_code ignored;
    loan->theirs.close(ignored);
    loan->agent.close(ignored);
}

asio::awaitable<void> LentAgent::take_back() {
    remove();
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::transport
