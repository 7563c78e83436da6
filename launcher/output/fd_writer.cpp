#include "launcher/output/fd_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace dtrun::output {
namespace {

constexpr std::size_t kTerminalPiece = 256;  // free bytes that make a terminal writable
constexpr int kPipeBytes = 1 << 20;
constexpr std::string_view kEraseLine = "\r\x1b[K";

/// `text` without what a terminal of `columns` would wrap, which could not be erased.
std::string_view cut_to_width(std::string_view text, std::size_t columns) {
    if (text.size() < columns) return text;
    std::size_t size = columns - 1;
    const auto continues = [&] { return (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80; };
    while (size > 0 && continues()) size--;
    return text.substr(0, size);
}

}  // namespace

bool same_file(int fd_a, int fd_b) {
    struct stat a {};
    struct stat b {};
    if (::fstat(fd_a, &a) != 0 || ::fstat(fd_b, &b) != 0) return false;
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

FdWriter::FdWriter(int fd, std::string name, BufferQueue::Options options, WrittenFunction written)
    : Sink(std::move(name), "its reader does not read", options, std::move(written)),
      inherited_(fd),
      fd_(fd),
      interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    choose_mode();
}

void FdWriter::choose_mode() {
    struct stat file {};
    if (::fstat(inherited_, &file) != 0) return;  // the first write says why
    terminal_ = ::isatty(inherited_) == 1;
    if (S_ISSOCK(file.st_mode)) mode_ = Mode::socket;
    if (!S_ISFIFO(file.st_mode) && !terminal_) return;
    const std::string path = fmt::format("/proc/self/fd/{}", inherited_);
    own_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    mode_ = own_ ? Mode::nonblocking : Mode::pieces;
    piece_bytes_ = terminal_ ? kTerminalPiece : PIPE_BUF;
    if (own_) fd_ = own_.get();
    // A large pipe saves switches to its reader. It is never shrunk, and a refusal does not matter.
    if (S_ISFIFO(file.st_mode) && ::fcntl(fd_, F_GETPIPE_SZ) < kPipeBytes)
        ::fcntl(fd_, F_SETPIPE_SZ, kPipeBytes);
}

void FdWriter::set_status(std::string_view text) {
    if (!has_status()) return;
    {
        const std::lock_guard lock(mutex_);
        status_ = text;
    }
    queue().poke();
}

void FdWriter::interrupt() {
    ::eventfd_write(interrupt_.get(), 1);
}

void FdWriter::end() {
    erase_status();
    own_.reset();  // a pipe's reader sees its end when all descriptions are closed
}

void FdWriter::write_out(BufferQueue::Buffer& buffer) {
    const std::string_view bytes(buffer.data.get(), buffer.size);
    if (bytes.empty() || failed_) return;
    erase_status();
    const std::string_view rest = put(bytes);
    if (!failed_) unwritten_bytes_ += rest.size();
    at_line_start_ = bytes.back() == '\n';
}

/// \return what could not be written, because of an error or because the time to stop has come
std::string_view FdWriter::put(std::string_view bytes) {
    while (!bytes.empty() && !failed_) {
        if (is_late()) break;
        if (mode_ == Mode::pieces) wait_writable();
        const ssize_t n = put_some(bytes);
        if (n >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(n));
        } else if (errno == EAGAIN) {
            wait_writable();
        } else if (errno != EINTR) {
            give_up(errno == EPIPE ? Errc::closed : Errc::internal, strerror(errno));
        }
    }
    return bytes;
}

ssize_t FdWriter::put_some(std::string_view bytes) {
    if (mode_ == Mode::socket)
        return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    const std::size_t most = mode_ == Mode::pieces ? piece_bytes_ : bytes.size();
    return ::write(fd_, bytes.data(), std::min(bytes.size(), most));
}

/// Returns when the descriptor takes bytes, or has failed, or stop() was called or its time is
/// over.
void FdWriter::wait_writable() {
    pollfd wait[2] = {{fd_, POLLOUT, 0}, {interrupt_.get(), POLLIN, 0}};
    if (!queue().closed()) {
        ::poll(wait, 2, -1);
        return;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(queue().time_left()).count();
    ::poll(wait, 1, static_cast<int>(std::clamp<long long>(left, 0, INT_MAX)));
}

void FdWriter::give_up(Errc code, std::string why) {
    if (failed_) return;
    failed_ = true;
    add_failure({code, fmt::format("{}: {}", name_, why)});
}

void FdWriter::erase_status() {
    if (drawn_.empty()) return;
    drawn_.clear();
    put(kEraseLine);
}

void FdWriter::draw_status() {
    if (!has_status() || !at_line_start_ || queue().closed()) return;
    std::string wanted;
    {
        const std::lock_guard lock(mutex_);
        wanted = status_;
    }
    if (const std::size_t width = columns(); width > 0) wanted = cut_to_width(wanted, width);
    if (wanted == drawn_) return;
    put(kEraseLine);
    put(wanted);
    drawn_ = std::move(wanted);
}

}  // namespace dtrun::output
