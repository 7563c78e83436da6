#include "launcher/history/record_writer.h"

#include "base/fd.h"
#include "base/simulated.h"
#include "launcher/history/history_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

namespace dtrun::history {

/// What the threads have in common, one after the other.
struct RecordWriter::File {
    std::string folder;
    std::string path{};
    Fd fd{};
    std::mutex mutex{};
    Result<void> result = fail(Errc::timed_out, "{} does not answer", folder);  // guarded by mutex

    Result<void> begin(const std::string& line) {
        if (auto made = make_history_folder(folder); !made) return made;
        constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
        fd.reset(::open(path.c_str(), kFlags, 0600));
        if (!fd) return fail(Errc::internal, "{}: {}", path, std::strerror(errno));
        if (auto done = write_all(fd.get(), line); !done) return fail(done.error(), "{}", path);
        return {};
    }
};

RecordWriter::RecordWriter(std::string folder, JobStart start, bool tidies)
    : file_(std::make_shared<File>(std::move(folder))) {
    file_->path =
        fmt::format("{}/{}{}", file_->folder, stem_of(start.job, start.time_ns), kRecordSuffix);
    thread_ = Thread([file = file_, start = std::move(start), tidies]() mutable {
        if (start.head.pid == 0) start.head = mark_of_this_process();
        auto done = file->begin(line_of(start));
        const bool is_there = done.has_value();
        {
            const std::lock_guard lock(file->mutex);
            file->result = std::move(done);
        }
        if (!tidies || !is_there) return;
        // Nobody waits for that, the end of the job least of all.
        Thread tidier([file] { tidy(file->folder, {}, since_1970().count()); });
        tidier.join_until(Clock::now());
    });
}

RecordWriter::~RecordWriter() {
    if (thread_.joinable()) thread_.join_until(Clock::now());
}

Result<void> RecordWriter::written(Deadline deadline) {
    if (thread_.joinable() && !thread_.join_until(deadline))
        return fail(Errc::timed_out, "{} does not answer", file_->folder);
    const std::lock_guard lock(file_->mutex);
    return file_->result;
}

Result<void> RecordWriter::finish(const JobEnd& end, Deadline deadline) {
    if (auto begun = written(deadline); !begun) return begun;
    thread_ = Thread([file = file_, line = line_of(end)] {
        auto done = write_all(file->fd.get(), line);
        const std::lock_guard lock(file->mutex);
        if (!done) file->result = fail(done.error(), "{}", file->path);
    });
    return written(deadline);
}

}  // namespace dtrun::history
