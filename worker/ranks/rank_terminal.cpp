#include "worker/ranks/rank_terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace dtrun::ranks {
namespace {

constexpr TerminalSize kUsualSize{24, 80};

Error failed(const char* what) {
    return {Errc::internal,
            fmt::format("no terminal for the rank: {}: {}", what, std::strerror(errno))};
}

}  // namespace

void set_terminal_size(int master, TerminalSize size) {
    if (size.rows == 0 || size.columns == 0) size = kUsualSize;
    const winsize wanted{size.rows, size.columns, 0, 0};
    ::ioctl(master, TIOCSWINSZ, &wanted);
}

Result<Terminal> open_terminal(TerminalSize size) {
    Terminal terminal;
    terminal.master.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
    if (!terminal.master) return std::unexpected(failed("posix_openpt"));
    const int master = terminal.master.get();
    if (::grantpt(master) != 0 || ::unlockpt(master) != 0)
        return std::unexpected(failed("unlockpt"));
    // By the master itself: /dev/pts may be another one here.
    terminal.slave.reset(::ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!terminal.slave) return std::unexpected(failed("TIOCGPTPEER"));
    set_terminal_size(master, size);
    return terminal;
}

TerminalCopier::TerminalCopier(asio::any_io_executor executor, Fd master, Fd pipe)
    : master_(executor, master.release()), pipe_(executor, pipe.release()) {}

void TerminalCopier::resize(TerminalSize size) {
    if (master_.is_open()) set_terminal_size(master_.native_handle(), size);
}

void TerminalCopier::stop() noexcept {
    boost::system::error_code ignored;
    master_.close(ignored);
    pipe_.close(ignored);
}

/// Whoever has the terminal open no more makes reading fail, after what was written has been read.
void TerminalCopier::read() {
    master_.async_wait(asio::posix::descriptor_base::wait_read,
                       [self = shared_from_this()](boost::system::error_code error) {
                           if (error) return;
                           const ssize_t n = ::read(self->master_.native_handle(),
                                                    self->piece_.data(), self->piece_.size());
                           if (n < 0 && (errno == EAGAIN || errno == EINTR)) return self->read();
                           if (n <= 0) return self->stop();
                           self->begin_ = 0;
                           self->end_ = static_cast<std::size_t>(n);
                           self->write();
                       });
}

void TerminalCopier::write() {
    const auto rest = asio::buffer(piece_.data() + begin_, end_ - begin_);
    pipe_.async_write_some(
        rest, [self = shared_from_this()](boost::system::error_code error, std::size_t bytes) {
            if (error) return self->stop();
            self->begin_ += bytes;
            if (self->begin_ < self->end_)
                self->write();
            else
                self->read();
        });
}

}  // namespace dtrun::ranks
