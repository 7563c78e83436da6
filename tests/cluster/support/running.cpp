#include "tests/cluster/support/running.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace dtrun::cluster {
namespace {

constexpr milliseconds kOpenOutputGrace{1000};

void set_nonblocking(const Fd& fd) {
    if (fd) fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

void block_signals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

Running::Running(const Place& place, const Command& command, const RunOptions& options)
    : terminal_(options.terminal), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    Streams streams;
    if (terminal_) {
        open_terminal(options, command, streams);
    } else {
        Pipe in = make_pipe().value();
        Pipe out = make_pipe().value();
        Pipe err = make_pipe().value();
        streams = {in.read.get(), out.write.get(), err.write.get()};
        in_ = std::move(in.write);
        out_ = std::move(out.read);
        err_ = std::move(err.read);
        child_ends_[0] = std::move(in.read);
        child_ends_[1] = std::move(out.write);
        child_ends_[2] = std::move(err.write);
    }
    unwritten_ = options.stdin_text;
    pid_ = start_inside(place, command, streams);
    process_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    for (Fd& fd : child_ends_) fd.reset();
    set_nonblocking(in_);
    set_nonblocking(out_);
    set_nonblocking(err_);
    thread_ = std::thread([this] { pump(); });
}

Running::~Running() {
    signal(SIGKILL);
    thread_.join();
}

void Running::open_terminal(const RunOptions& options, const Command& command, Streams& streams) {
    out_.reset(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!out_ || unlockpt(out_.get()) != 0) throw std::runtime_error("no pseudo-terminal");
    Fd& slave = child_ends_[0];
    slave.reset(ioctl(out_.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!slave) throw std::runtime_error("no pseudo-terminal");
    winsize size{};
    size.ws_col = static_cast<unsigned short>(options.columns);
    size.ws_row = static_cast<unsigned short>(options.rows);
    ioctl(slave.get(), TIOCSWINSZ, &size);
    if (fchown(slave.get(), command.account.uid, command.account.gid) != 0) {
        throw std::runtime_error("cannot give the pseudo-terminal away");
    }
    in_.reset(fcntl(out_.get(), F_DUPFD_CLOEXEC, 3));
    streams = {slave.get(), slave.get(), slave.get()};
}

void Running::write_stdin(std::string_view text) {
    const std::lock_guard lock(mutex_);
    unwritten_ += text;
    wake();
}

void Running::close_stdin() {
    const std::lock_guard lock(mutex_);
    if (terminal_) unwritten_ += '\x04';
    close_stdin_ = !terminal_;
    wake();
}

void Running::wake() {
    const eventfd_t one = 1;
    eventfd_write(wake_.get(), one);
}

void Running::signal(int number) {
    syscall(SYS_pidfd_send_signal, process_.get(), number, nullptr, 0u);
}

bool Running::finished() const {
    const std::lock_guard lock(mutex_);
    return finished_;
}

std::string Running::out_so_far() const {
    const std::lock_guard lock(mutex_);
    return result_.out;
}

std::string Running::err_so_far() const {
    const std::lock_guard lock(mutex_);
    return result_.err;
}

bool Running::wait_for_output(std::string_view text, milliseconds timeout) {
    const auto appears = [&] {
        return result_.out.find(text) != std::string::npos ||
               result_.err.find(text) != std::string::npos;
    };
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return finished_ || appears(); });
    return appears();
}

Finished Running::wait(milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return finished_; })) {
        result_.timed_out = !exited_;
        signal(SIGKILL);
        changed_.wait(lock, [&] { return finished_; });
    }
    return result_;
}

void Running::pump() {
    block_signals();  // above all SIGPIPE
    while (pump_once()) {
    }
    const std::lock_guard lock(mutex_);
    result_.output_open = out_ || err_;
    finished_ = true;
    changed_.notify_all();
}

/// Waits for an event of the command and handles it. \return false when the command and its output
/// have ended
bool Running::pump_once() {
    std::array<pollfd, 5> fds{};
    int patience = -1;
    {
        const std::lock_guard lock(mutex_);
        feed();
        fds = {{{wake_.get(), POLLIN, 0},
                {exited_ ? -1 : process_.get(), POLLIN, 0},
                {out_.get(), POLLIN, 0},
                {err_.get(), POLLIN, 0},
                {unwritten_.empty() ? -1 : in_.get(), POLLOUT, 0}}};
        if (exited_) {
            if (!out_ && !err_) return false;
            const auto left = exited_at_ + kOpenOutputGrace - Clock::now();
            patience =
                static_cast<int>(std::max<long>(0, std::chrono::ceil<milliseconds>(left).count()));
        }
    }
    const int ready = poll(fds.data(), fds.size(), patience);
    const std::lock_guard lock(mutex_);
    if (ready == 0) return false;
    eventfd_t ignored;
    eventfd_read(wake_.get(), &ignored);
    if (fds[2].revents != 0) drain(out_, result_.out);
    if (fds[3].revents != 0) drain(err_, result_.err);
    if (fds[1].revents != 0) reap();
    changed_.notify_all();
    return true;
}

void Running::drain(Fd& fd, std::string& into) {
    std::array<char, 65536> buffer;
    const ssize_t got = read(fd.get(), buffer.data(), buffer.size());
    if (got > 0) {
        into.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        fd.reset();  // a terminal whose last slave was closed returns EIO
    }
}

void Running::feed() {
    while (in_ && !unwritten_.empty()) {
        const ssize_t put = write(in_.get(), unwritten_.data(), unwritten_.size());
        if (put < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (put < 0) {
            in_.reset();  // no process reads it any more
            unwritten_.clear();
            return;
        }
        unwritten_.erase(0, static_cast<std::size_t>(put));
    }
    if (close_stdin_) in_.reset();
}

void Running::reap() {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return;
    exited_ = true;
    exited_at_ = Clock::now();
    result_.wall = std::chrono::duration_cast<milliseconds>(exited_at_ - started_);
    result_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace dtrun::cluster
