#include "launcher/output/log_file.h"

#include "launcher/output/file_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace dtrun::output {

Result<Running<LogFile>> LogFile::open(std::string path, Fd opened, Rotation rotation,
                                       BufferQueue::Options options, WrittenFunction taken) {
    std::shared_ptr<LogFile> log(new LogFile(std::move(path), rotation, options, std::move(taken)));
    const auto done = opened ? log->take(std::move(opened)) : log->open_file();
    if (!done) return std::unexpected(done.error());
    return Running<LogFile>(std::move(log));
}

LogFile::LogFile(std::string path, Rotation rotation, BufferQueue::Options options,
                 WrittenFunction taken)
    : Sink(std::move(path), "too slow", options, std::move(taken)), rotation_(rotation) {}

Result<void> LogFile::open_file() {
    auto opened = open_log_file(name_);
    if (!opened) return std::unexpected(opened.error());
    return take(std::move(*opened));
}

Result<void> LogFile::take(Fd opened) {
    file_ = std::move(opened);
    struct stat found {};
    if (::fstat(file_.get(), &found) != 0)
        return fail(code_of_file_error(errno), "{}: {}", name_, std::strerror(errno));
    if (mode_ != 0 && mode_ != found.st_mode) ::fchmod(file_.get(), mode_ & 07777);
    mode_ = mode_ != 0 ? mode_ : found.st_mode;
    fill_ = {static_cast<std::uint64_t>(found.st_size), false};
    if (S_ISREG(found.st_mode)) return {};
    rotation_.bytes_max = 0;  // a device keeps its name
    is_pipe_ = true;
    return {};
}

void LogFile::write_out(BufferQueue::Buffer& buffer) {
    if (failed_) return;
    if (is_late()) {
        unwritten_bytes_ += buffer.size;
        return;
    }
    auto written = write({buffer.data.get(), buffer.size});
    if (written) return;
    failed_ = true;
    add_failure(std::move(written.error()));
}

Result<void> LogFile::write(std::string_view bytes) {
    while (!bytes.empty()) {
        std::size_t fits = bytes.size();
        if (rotation_.bytes_max > 0) fits = part_that_fits(bytes, fill_, rotation_.bytes_max);
        if (auto written = write_part(bytes.substr(0, fits)); !written) return written;
        fill_.add(bytes.substr(0, fits));
        bytes.remove_prefix(fits);
        if (bytes.empty()) break;
        if (auto aside = set_aside(AT_FDCWD, name_, rotation_.keep); !aside) return aside;
        if (auto opened = open_file(); !opened) return opened;
    }
    return {};
}

Result<void> LogFile::write_part(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            if (auto waited = wait_for_reader(); !waited) return waited;
            continue;
        }
        if (n < 0)
            return fail(Errc::internal, "{}: {}; it is not complete", name_, std::strerror(errno));
        bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
}

/// The file may be a pipe, and full.
Result<void> LogFile::wait_for_reader() {
    constexpr int kLookMs = 50;  // whether stop() was called meanwhile
    pollfd room{file_.get(), POLLOUT, 0};
    ::poll(&room, 1, kLookMs);
    if (!is_late()) return {};
    return fail(Errc::timed_out, "{}: its reader is too slow; it is not complete", name_);
}

}  // namespace dtrun::output
