#include "launcher/commands/show_log.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/threads.h"
#include "launcher/cli/command.h"
#include "launcher/history/history_folder.h"
#include "launcher/history/kept_log.h"
#include "launcher/output/path_pattern.h"
#include "launcher/plan/exit_code.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace dtrun::commands {
namespace {

using history::LogLine;

constexpr std::size_t kWriteBytes = 64u << 10;
/// The kernel tells of changes on this machine; a file server may tell nothing.
constexpr std::chrono::seconds kLookTime{1};

/// Lines on their way to standard output and standard error, in order.
class LogLines {
public:
    void add(Stream stream, std::string_view text) {
        if (stream != stream_) flush();
        stream_ = stream;
        text_ += text;
        if (text_.size() >= kWriteBytes) flush();
    }
    void flush() {
        if (text_.empty()) return;
        const int fd = stream_ == Stream::out ? STDOUT_FILENO : STDERR_FILENO;
        if (status_ == 0)
            if (const auto done = write_all(fd, text_); !done) status_ = status_for(done.error());
        text_.clear();
    }
    int status() const { return status_; }

private:
    static int status_for(const Error& error) {
        return error.code == Errc::closed ? cli::kExitReaderGone : plan::kExitInternal;
    }

    Stream stream_ = Stream::out;
    std::string text_;
    int status_ = 0;
};

/// Changes of a log, whatever files it has, and of the record of its job.
class Watch {
public:
    Watch(const std::string& log, const std::string& record)
        : changes_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
          name_(log.substr(log.rfind('/') + 1)) {
        const std::string folder = log.substr(0, log.rfind('/') + 1);
        constexpr auto kChanges = IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE;
        ::inotify_add_watch(changes_.get(), folder.c_str(), kChanges);
        record_ = ::inotify_add_watch(changes_.get(), record.c_str(), IN_MODIFY);
    }

    /// Until the log or the record changes, or it is time to look at both.
    /// \return whether the job may have ended
    bool wait() {
        bool may_have_ended = false, has_more = false;
        while (!may_have_ended && !has_more && Clock::now() < look_at_) {
            pollfd changed{changes_.get(), POLLIN, 0};
            ::poll(&changed, 1, poll_timeout(look_at_));
            read_changes(may_have_ended, has_more);
        }
        if (Clock::now() >= look_at_) may_have_ended = true;
        if (may_have_ended) look_at_ = after(kLookTime);
        return may_have_ended;
    }

private:
    void read_changes(bool& may_have_ended, bool& has_more) {
        alignas(inotify_event) std::array<char, 4096> some{};
        for (ssize_t size; (size = ::read(changes_.get(), some.data(), some.size())) > 0;)
            for (ssize_t at = 0; at < size;) {
                inotify_event event{};
                std::memcpy(&event, some.data() + at, sizeof event);
                const char* const name = some.data() + at + sizeof event;
                at += static_cast<ssize_t>(sizeof event + event.len);
                // More than the kernel keeps is as if all had changed.
                const bool is_lost = (event.mask & IN_Q_OVERFLOW) != 0;
                may_have_ended = may_have_ended || is_lost || event.wd == record_;
                has_more = has_more || (event.len > 0 && std::string_view(name).starts_with(name_));
            }
    }

    Fd changes_;
    std::string name_;  ///< of the log; those of files that were set aside begin with it
    int record_ = -1;
    Deadline look_at_ = after(kLookTime);
};

class LogShow {
public:
    LogShow(const history::Known& job, const LogView& view)
        : job_(job), view_(view), log_(job.entry.start.log) {}

    ShownLog run() {
        if (view_.follow) watch_.emplace(job_.entry.start.log, job_.entry.path);
        ShownLog shown{0, job_.entry.end};
        bool has_ended = !view_.follow || has_ended_now(shown.end);
        if (!is_own_log_) place_ = has_begin() ? Place::before : Place::ours;
        for (;;) {
            show_what_is_there(has_ended);
            shown.status = lines_.status();
            if (has_ended || shown.status != 0) break;
            // Its last lines are written before its end is.
            has_ended = watch_->wait() && has_ended_now(shown.end);
        }
        return shown;
    }

private:
    void show_what_is_there(bool has_ended) {
        while (lines_.status() == 0) {
            auto line = log_.next();
            if (!line && has_ended) line = log_.rest();
            if (!line) break;
            if (log_.take_gap()) note("output in between is not kept any more");
            take(*line);
        }
        if (!std::exchange(is_begun_, true)) begin(has_ended);
        lines_.flush();
    }

    /// What was there at first has been read.
    void begin(bool has_ended) {
        const std::string& path = job_.entry.start.log;
        if (has_ended && !log_.is_open()) note(fmt::format("{}: {}", path, std::strerror(ENOENT)));
        for (const std::string& line : std::exchange(last_, {})) show(line);
    }

    /// The begin of this job is in what is kept of a log that several have, one after the other.
    bool has_begin() const {
        history::KeptLog log(job_.entry.start.log);
        while (const auto line = log.next())
            if (is_ours(history::job_begun_by(history::parse_log_line(*line)))) return true;
        return false;
    }
    bool is_ours(std::string_view job) const {
        return !job.empty() && job_.entry.start.job.starts_with(job);
    }

    void take(std::string_view line) {
        const LogLine parsed = history::parse_log_line(line);
        const std::string_view begun = history::job_begun_by(parsed);
        const bool is_first = std::exchange(is_first_, false);
        if (is_ours(begun)) {
            place_ = Place::ours;
            return;
        }
        if (!begun.empty() && !is_own_log_ && place_ == Place::ours) place_ = Place::behind;
        if (place_ != Place::ours) return;
        if (is_first && !view_.tail)
            note(job_.entry.start.log_kept < 1u << 20
                     ? "the begin of the output is not kept any more"
                     : fmt::format(
                           "the begin of the output is not kept any more, only the last {} MiB",
                           job_.entry.start.log_kept >> 20));
        if (view_.rank && parsed.rank != view_.rank) return;
        if (!is_begun_ && view_.tail) {
            last_.emplace_back(line);
            if (last_.size() > *view_.tail) last_.pop_front();
            return;
        }
        show(line);
    }

    void show(std::string_view line) {
        const LogLine parsed = history::parse_log_line(line);
        const Stream stream = parsed.of_dtrun ? Stream::err : parsed.stream;
        const bool is_tagged = !parsed.of_dtrun && !view_.rank && job_.entry.start.ranks > 1;
        if (view_.timestamps)
            lines_.add(stream, line);
        else if (is_tagged)
            lines_.add(stream,
                       fmt::format("[{}]<{}>:{}", parsed.rank ? fmt::to_string(*parsed.rank) : "-",
                                   stream == Stream::out ? "stdout" : "stderr", parsed.text));
        else
            lines_.add(stream, parsed.text);
    }

    void note(std::string_view text) { lines_.add(Stream::err, fmt::format("dtrun: {}\n", text)); }

    /// It lies beside the record, and no other job writes into it.
    bool is_own_log() const {
        std::string beside = job_.entry.path;
        beside.resize(beside.size() - std::min(beside.size(), history::kRecordSuffix.size()));
        return job_.entry.start.log == fmt::format("{}{}", beside, history::kLogSuffix);
    }

    bool has_ended_now(std::optional<history::JobEnd>& end) const {
        history::JobEntry entry = job_.entry;
        const history::Life life = history::settle(entry, here_);
        end = std::move(entry.end);
        return end || life == history::Life::gone;
    }

    const history::Known& job_;
    const LogView& view_;
    history::KeptLog log_;
    LogLines lines_;
    std::optional<Watch> watch_;
    const history::ProcessMark here_ = history::mark_of_this_process();
    const bool is_own_log_ = is_own_log();
    enum class Place { before, ours, behind } place_ = Place::ours;
    std::deque<std::string> last_;
    bool is_begun_ = false, is_first_ = true;
};

}  // namespace

ShownLog show_log(const history::Known& job, const LogView& view) {
    return LogShow(job, view).run();
}

}  // namespace dtrun::commands
