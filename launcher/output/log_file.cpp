#include "launcher/output/log_file.h"

#include "launcher/output/rank_files.h"
#include "launcher/output/writer_thread.h"

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

Result<std::unique_ptr<LogFile>> LogFile::open(std::string path, Rotation rotation,
                                               BufferQueue::Options options, TakenFunction taken) {
    std::unique_ptr<LogFile> log(new LogFile(std::move(path), rotation, options, std::move(taken)));
    if (const auto opened = log->open_file(); !opened) return std::unexpected(opened.error());
    log->thread_ = start_writer_thread([raw = log.get()] { raw->run(); });
    return log;
}

LogFile::LogFile(std::string path, Rotation rotation, BufferQueue::Options options,
                 TakenFunction taken)
    : path_(std::move(path)), rotation_(rotation), taken_(std::move(taken)), queue_(options) {}

LogFile::~LogFile() {
    stop(Clock::now());
    join();
}

Result<void> LogFile::open_file() {
    // O_NONBLOCK matters only if the name is a FIFO's: then an error instead of a wait.
    file_.reset(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
    struct stat found {};
    if (!file_ || ::fstat(file_.get(), &found) != 0)
        return fail(code_of_file_error(errno), "{}: {}", path_, std::strerror(errno));
    fill_ = {static_cast<std::uint64_t>(found.st_size), false};
    if (!S_ISREG(found.st_mode)) rotation_.bytes_max = 0;  // a device keeps its name
    return {};
}

std::optional<Error> LogFile::take_failure() {
    const std::lock_guard lock(mutex_);
    return std::exchange(failure_, {});
}

void LogFile::join() {
    if (thread_.joinable()) thread_.join();
}

void LogFile::run() {
    std::vector<BufferQueue::Buffer> batch;
    while (queue_.take(batch)) {
        for (BufferQueue::Buffer& buffer : batch) {
            const bool late = queue_.closed() && queue_.time_left() <= Clock::duration::zero();
            if (late && !failed_) unwritten_bytes_ += buffer.size;
            if (!late && !failed_)
                if (auto written = write({buffer.data.get(), buffer.size}); !written)
                    give_up(std::move(written.error()));
            queue_.release(buffer);
            taken_(buffer.pieces);
            queue_.recycle(std::move(buffer));
        }
        batch.clear();
    }
    {
        const std::lock_guard lock(mutex_);
        if (!failed_) unwritten_bytes_ += abandoned_bytes_;
    }
    if (unwritten_bytes_ > 0)
        give_up({Errc::timed_out,
                 fmt::format("{}: too slow, {} bytes not written", path_, unwritten_bytes_)});
    taken_({});
}

Result<void> LogFile::write(std::string_view bytes) {
    while (!bytes.empty()) {
        std::size_t fits = bytes.size();
        if (rotation_.bytes_max > 0) fits = part_that_fits(bytes, fill_, rotation_.bytes_max);
        if (auto written = write_part(bytes.substr(0, fits)); !written) return written;
        fill_.add(bytes.substr(0, fits));
        bytes.remove_prefix(fits);
        if (bytes.empty()) break;
        if (auto aside = set_aside(path_, rotation_.keep); !aside) return aside;
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
            return fail(Errc::internal, "{}: {}; it is not complete", path_, std::strerror(errno));
        bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
}

/// The file may be a pipe, and full.
Result<void> LogFile::wait_for_reader() {
    constexpr int kLookMs = 50;  // whether stop() was called meanwhile
    pollfd room{file_.get(), POLLOUT, 0};
    ::poll(&room, 1, kLookMs);
    if (!queue_.closed() || queue_.time_left() > Clock::duration::zero()) return {};
    return fail(Errc::timed_out, "{}: its reader is too slow; it is not complete", path_);
}

void LogFile::stop(Deadline deadline, std::size_t abandoned_bytes) {
    {
        const std::lock_guard lock(mutex_);
        abandoned_bytes_ = abandoned_bytes;
    }
    queue_.close(deadline);
}

void LogFile::give_up(Error why) {
    failed_ = true;
    const std::lock_guard lock(mutex_);
    failure_ = std::move(why);
}

}  // namespace dtrun::output
