#include "launcher/control/caller_server.h"

#include "base/log.h"
#include "base/loop/accept.h"
#include "launcher/control/control_place.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace dtrun::control {
namespace {

constexpr int kFolderTries = 5;

}  // namespace

asio::awaitable<void> CallerServer::Caller::room() {
    if (destination != nullptr) co_await destination->room();
}

CallerServer::CallerServer(asio::any_io_executor executor, std::string what, CallerEvents& events)
    : executor_(std::move(executor)),
      what_(std::move(what)),
      events_(events),
      acceptor_(executor_),
      tasks_(executor_) {}

/// The socket, and its folder if it was the last one.
void CallerServer::remove() noexcept {
    if (!path_.empty() && ::unlink(path_.c_str()) == 0)
        ::rmdir(path_.substr(0, path_.rfind('/')).c_str());
    path_.clear();
}

Result<void> CallerServer::listen(const std::string& folder, const std::string& socket) {
    const std::string path = folder + "/" + socket;
    // Another process that ends may remove the folder, if it is empty, just when it is there.
    for (int tries = 0;; ++tries) {
        if (auto made = make_private_folder(folder); !made) return made;
        const auto done = listen_at(path);
        if (done) break;
        boost::system::error_code ignored;
        acceptor_.close(ignored);
        if (done.error().code != Errc::not_found || tries == kFolderTries) return done;
    }
    path_ = path;
    // systemd-tmpfiles removes what is old, and takes no renamed socket for one at which somebody listens.
    folder_.reset(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder_) ::flock(folder_.get(), LOCK_SH | LOCK_NB);
    tasks_.spawn(accept());
    return {};
}

/// The socket gets its name when it listens: who finds one that refuses knows that it is dead.
Result<void> CallerServer::listen_at(const std::string& path) {
    const std::string coming = path + ".new";
    if (coming.size() >= sizeof(sockaddr_un::sun_path))
        return fail(Errc::invalid_input, "{}: too long for a socket's name", path);
    boost::system::error_code error;
    acceptor_.open(Unix(), error);
    if (!error) close_on_exec(acceptor_.native_handle());
    if (!error) acceptor_.bind(Unix::endpoint(coming), error);
    if (!error) acceptor_.listen(SOMAXCONN, error);
    if (error)
        return fail(error == boost::system::errc::no_such_file_or_directory ? Errc::not_found
                                                                            : Errc::internal,
                    "{}: {}", path, error.message());
    ::chmod(coming.c_str(), 0600);
    if (std::rename(coming.c_str(), path.c_str()) == 0) return {};
    const int cause = errno;
    ::unlink(coming.c_str());
    return fail(Errc::internal, "{}: {}", path, std::strerror(cause));
}

asio::awaitable<void> CallerServer::accept() {
    AcceptTrouble trouble(what_);
    for (;;) {
        auto socket = co_await accept_next(acceptor_, trouble);
        if (!socket || !acceptor_.is_open())
            co_return;  // join() knows of no caller who comes later
        // The folder keeps others out already; this holds for one that root has opened.
        if (foreign_user(socket->native_handle())) continue;
        const CallerId id = ++last_caller_;
        callers_.emplace(id, std::make_unique<Caller>(std::move(*socket)));
        tasks_.spawn(serve(id));
    }
}

asio::awaitable<void> CallerServer::serve(CallerId id) {
    Caller& caller = *callers_.at(id);
    TaskGroup writer(executor_);
    writer.spawn(caller.link.run_writer());
    const std::function<Result<void>(const FrameView&)> hear = [this, id](const FrameView& frame) {
        return events_.heard(id, frame);
    };
    const auto served = co_await caller.link.serve(hear, &caller);
    if (served.error().code == Errc::invalid_input)
        log::info("{}: {}", what_, served.error().message);
    events_.left(id);
    caller.link.close();
    co_await writer.join();
    callers_.erase(id);
}

CallerServer::Caller* CallerServer::find(CallerId id) const {
    const auto found = callers_.find(id);
    return found == callers_.end() ? nullptr : found->second.get();
}

void CallerServer::send(CallerId caller, Bytes frame) {
    if (Caller* const found = find(caller)) found->link.send(std::move(frame));
}

bool CallerServer::has_room(CallerId caller) const {
    const Caller* const found = find(caller);
    return found == nullptr || !found->link.is_full();
}

void CallerServer::forward(CallerId caller, Backpressure* destination) {
    if (Caller* const found = find(caller)) found->destination = destination;
}

void CallerServer::shut_down_sending(CallerId caller) {
    if (Caller* const found = find(caller)) found->link.shut_down_sending();
}

void CallerServer::stop() noexcept {
    remove();
    boost::system::error_code ignored;
    acceptor_.close(ignored);
}

asio::awaitable<void> CallerServer::join() {
    for (const auto& [id, caller] : callers_) caller->link.close();
    co_await tasks_.join();
}

}  // namespace dtrun::control
