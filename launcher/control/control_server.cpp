#include "launcher/control/control_server.h"

#include "base/fd.h"
#include "base/log.h"
#include "launcher/control/control_place.h"
#include "rendezvous/wire/message.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace dtrun::control {

namespace {

constexpr int kFolderTries = 5;

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::open(asio::any_io_executor executor,
                                                           const std::string& folder,
                                                           const std::string& socket,
                                                           ControlEvents& events) {
    const std::string path = folder + "/" + socket;
    // Another job that ends may remove the folder, if it is empty, just when it is there.
    for (int tries = 0;; ++tries) {
        if (auto made = make_private_folder(folder); !made) return std::unexpected(made.error());
        std::unique_ptr<ControlServer> server(new ControlServer(executor, path, events));
        const auto done = server->listen();
        if (done) return server;
        if (done.error().code != Errc::not_found || tries == kFolderTries)
            return std::unexpected(done.error());
    }
}

ControlServer::ControlServer(asio::any_io_executor executor, std::string path,
                             ControlEvents& events)
    : executor_(std::move(executor)),
      path_(std::move(path)),
      events_(events),
      acceptor_(executor_),
      tasks_(executor_) {}

ControlServer::~ControlServer() {
    remove();
}

/// The socket, and its folder if it was the last one.
void ControlServer::remove() noexcept {
    if (::unlink(path_.c_str()) == 0) ::rmdir(path_.substr(0, path_.rfind('/')).c_str());
}

/// The socket gets its name when it listens: who finds one that refuses knows that it is dead.
Result<void> ControlServer::listen() {
    const std::string coming = path_ + ".new";
    if (coming.size() >= sizeof(sockaddr_un::sun_path))
        return fail(Errc::invalid_input, "{}: too long for a socket's name", path_);
    boost::system::error_code error;
    acceptor_.open(Unix(), error);
    if (!error) close_on_exec(acceptor_.native_handle());
    if (!error) acceptor_.bind(Unix::endpoint(coming), error);
    if (!error) acceptor_.listen(SOMAXCONN, error);
    if (error)
        return fail(error == boost::system::errc::no_such_file_or_directory ? Errc::not_found
                                                                            : Errc::internal,
                    "{}: {}", path_, error.message());
    if (std::rename(coming.c_str(), path_.c_str()) != 0) {
        const int cause = errno;
        ::unlink(coming.c_str());
        return fail(Errc::internal, "{}: {}", path_, std::strerror(cause));
    }
    // systemd-tmpfiles removes what is old, and takes no renamed socket for one at which somebody listens.
    const std::string folder = path_.substr(0, path_.rfind('/'));
    folder_.reset(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder_) ::flock(folder_.get(), LOCK_SH | LOCK_NB);
    tasks_.spawn(accept());
    return {};
}

asio::awaitable<void> ControlServer::accept() {
    AcceptTrouble trouble("the control socket");
    for (;;) {
        auto socket = co_await accept_next(acceptor_, trouble);
        if (!socket) co_return;
        // The folder keeps others out already; this holds for one that root has opened.
        if (foreign_user(socket->native_handle())) continue;
        const CallerId id = ++last_caller_;
        callers_.emplace(id, std::make_unique<Caller>(std::move(*socket)));
        tasks_.spawn(run(id));
    }
}

asio::awaitable<void> ControlServer::run(CallerId id) {
    Caller& caller = *callers_.at(id);
    TaskGroup writer(executor_);
    writer.spawn(caller.link.run_writer());
    const std::function<Result<void>(const FrameView&)> take = [this, id](const FrameView& frame) {
        return handle(id, frame);
    };
    const auto served = co_await caller.link.serve(take);
    if (served.error().code == Errc::invalid_input)
        log::info("the control socket: {}", served.error().message);
    if (caller.asked) events_.left(id);
    caller.link.close();
    co_await writer.join();
    callers_.erase(id);
}

Result<void> ControlServer::handle(CallerId id, const FrameView& frame) {
    Caller& caller = *callers_.at(id);
    if (!caller.asked) {
        const auto ask = decode<ControlRequest>(frame.payload);
        if (frame.type != FrameType::control_request || !ask)
            return fail(Errc::invalid_input, "a command's first frame is ask");
        caller.asked = true;
        events_.asked(id, *ask);
        return {};
    }
    if (frame.type == FrameType::input) {
        const auto input = decode<Input>(frame.payload);
        if (!input) return std::unexpected(input.error());
        events_.typed(id, input->bytes);
        return {};
    }
    if (frame.type == FrameType::resize) {
        const auto resize = decode<Resize>(frame.payload);
        if (!resize) return std::unexpected(resize.error());
        events_.resized(id, resize->size);
        return {};
    }
    return fail(Errc::invalid_input, "unexpected frame of type {}", static_cast<int>(frame.type));
}

void ControlServer::answer(CallerId id, const Answer& answer) {
    const auto found = callers_.find(id);
    if (found == callers_.end()) return;
    found->second->link.send(encode(answer));
}

bool ControlServer::has_room(CallerId id) const {
    const auto found = callers_.find(id);
    return found == callers_.end() || !found->second->link.is_full();
}

void ControlServer::stop() noexcept {
    remove();
    boost::system::error_code ignored;
    acceptor_.close(ignored);
}

asio::awaitable<void> ControlServer::join() {
    for (const auto& [id, caller] : callers_) caller->link.close();
    co_await tasks_.join();
}

}  // namespace dtrun::control
