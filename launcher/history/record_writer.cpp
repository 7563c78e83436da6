#include "launcher/history/record_writer.h"

#include "base/fd.h"
#include "base/simulated.h"
#include "launcher/history/history_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

namespace dtrun::history {

/// What the thread shares. It is left behind with that if a call does not return.
class RecordWriter::File {
public:
    explicit File(std::string folder) : folder_(std::move(folder)) {}

    /// Writes the first line, and the second one when there is one.
    void write(const std::string& path, const std::string& begin, bool tidies) {
        done(make(path, begin));
        if (tidies && fd_) {
            // Nobody waits for that, the end of the job least of all.
            Thread tidier([folder = folder_] { tidy(folder, {}, since_1970().count()); });
            tidier.join_until(Clock::now());
        }
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return end_.has_value(); });
        const std::string end = *end_;
        lock.unlock();
        if (end.empty() || !fd_) return;
        auto written = write_all(fd_.get(), end);
        if (!written) written = fail(written.error(), "{}", path);
        done(std::move(written));
    }

    /// Whether the lines are written that there are, as far as is known by then.
    Result<void> wait(Deadline deadline) {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_until(lock, deadline, [this] { return !is_busy_; }))
            return fail(Errc::timed_out, "{} does not answer", folder_);
        return result_;
    }

    /// \param line  empty: there will be none
    void end(std::string line) {
        const std::lock_guard lock(mutex_);
        is_busy_ = !line.empty() && result_.has_value();
        end_ = std::move(line);
        changed_.notify_all();
    }

private:
    Result<void> make(const std::string& path, const std::string& begin) {
        if (auto made = make_history_folder(folder_); !made) return made;
        constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
        Fd file(::open(path.c_str(), kFlags, 0600));
        if (!file) return fail(Errc::internal, "{}: {}", path, std::strerror(errno));
        if (auto written = write_all(file.get(), begin); !written)
            return fail(written.error(), "{}", path);
        fd_ = std::move(file);
        return {};
    }

    void done(Result<void> result) {
        const std::lock_guard lock(mutex_);
        result_ = std::move(result);
        is_busy_ = false;
        changed_.notify_all();
    }

    const std::string folder_;
    Fd fd_;  ///< the thread's
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_busy_ = true;             ///< guarded by mutex_, as what follows
    Result<void> result_;             ///< of the last line
    std::optional<std::string> end_;  ///< the second line
};

RecordWriter::RecordWriter(std::string folder, JobStart start, bool tidies)
    : file_(std::make_shared<File>(folder)) {
    if (start.head.pid == 0) start.head = mark_of_this_process();
    std::string path =
        fmt::format("{}/{}{}", folder, stem_of(start.job, start.time_ns), kRecordSuffix);
    thread_ = Thread([file = file_, path = std::move(path), begin = line_of(start), tidies] {
        file->write(path, begin, tidies);
    });
}

RecordWriter::~RecordWriter() {
    file_->end({});
    thread_.join_until(Clock::now());
}

Result<void> RecordWriter::written(Deadline deadline) {
    return file_->wait(deadline);
}

Result<void> RecordWriter::finish(const JobEnd& end, Deadline deadline) {
    if (auto begun = written(deadline); !begun) return begun;
    file_->end(line_of(end));
    return written(deadline);
}

}  // namespace dtrun::history
