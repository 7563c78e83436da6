#include "launcher/output/stdin_pump.h"

#include "base/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <utility>

namespace dtrun::output {

StdinPump::StdinPump(asio::any_io_executor executor, std::vector<HostId> hosts,
                     std::function<void(HostId, std::string_view)> send)
    : executor_(executor), send_(std::move(send)) {
    for (const HostId host : hosts) receivers_.push_back({host, 0});
}

void StdinPump::start() {
    paused_ = false;
    if (!kept_.empty()) send(std::exchange(kept_, {}));
    if (ended_) return deliver({});
    if (!input_) open();
    wait();
}

void StdinPump::pause() {
    paused_ = true;
}

void StdinPump::open() {
    struct stat info {};
    if (::fstat(STDIN_FILENO, &info) != 0) return deliver({});  // closed: nothing will ever come
    // Who has started us may have read some of a file, and reads on after us: the offset is shared.
    const mode_t mode = info.st_mode;
    const bool has_offset = S_ISREG(mode) || S_ISBLK(mode) || S_ISDIR(mode);
    if (!has_offset)
        input_.reset(::open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!input_) input_.reset(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));  // a socket, or not ours
    if (!input_) return deliver({});
    const bool is_ready = has_offset || (S_ISCHR(mode) && ::isatty(input_.get()) == 0);
    if (!is_ready)
        watch_ = std::make_unique<asio::posix::stream_descriptor>(
            executor_, ::fcntl(input_.get(), F_DUPFD_CLOEXEC, 3));
}

std::uint64_t StdinPump::room() const {
    std::uint64_t room = kWindowBytes;
    for (const Receiver& receiver : receivers_)
        room = std::min(room, kWindowBytes - std::min(kWindowBytes, receiver.under_way));
    return room;
}

/// Reading a terminal in the background would stop us.
bool StdinPump::may_read() const {
    return ::isatty(STDIN_FILENO) == 0 || ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

void StdinPump::wait() {
    if (waiting_ || paused_ || ended_ || receivers_.empty() || room() == 0 || !may_read()) return;
    waiting_ = true;
    const auto ready = [this](boost::system::error_code error) {
        waiting_ = false;
        if (error == asio::error::operation_aborted) return;
        error ? deliver({}) : read();  // what cannot be waited for will never come
    };
    if (watch_)
        watch_->async_wait(asio::posix::descriptor_base::wait_read, ready);
    else
        asio::post(executor_, [ready] { ready({}); });
}

void StdinPump::read() {
    if (paused_ || ended_ || !may_read()) return;
    constexpr std::uint64_t kReadBytesMax = 64u << 10;
    std::string bytes(std::min(room(), kReadBytesMax), '\0');
    const ssize_t n = ::read(input_.get(), bytes.data(), bytes.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return wait();
    if (n < 0 && errno == EISDIR) log::warn("standard input is a directory: ranks have none");
    bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    if (filter_ && n > 0) bytes = filter_(bytes);
    if (!bytes.empty() || n <= 0) deliver(bytes);
    wait();
}

void StdinPump::deliver(std::string_view bytes) {
    ended_ = bytes.empty();
    send(bytes);
}

void StdinPump::send(std::string_view bytes) {
    for (Receiver& receiver : receivers_) {
        receiver.under_way += bytes.size();
        send_(receiver.host, bytes);
    }
}

void StdinPump::inject(std::string_view bytes) {
    if (bytes.empty()) return;
    if (paused_)
        kept_ += bytes;
    else
        send(bytes);
}

void StdinPump::credit(HostId host, std::uint64_t bytes) {
    for (Receiver& receiver : receivers_)
        if (receiver.host == host) receiver.under_way -= std::min(receiver.under_way, bytes);
    wait();
}

void StdinPump::host_gone(HostId host) {
    std::erase_if(receivers_, [host](const Receiver& r) { return r.host == host; });
    wait();
}

void StdinPump::resume() {
    wait();
}

void StdinPump::stop() noexcept {
    ended_ = true;
    if (watch_) watch_->close();
}

}  // namespace dtrun::output
