#include "launcher/commands/show_log.h"

#include "base/fd.h"
#include "launcher/cli/command.h"
#include "launcher/history/history_folder.h"
#include "launcher/history/kept_log.h"
#include "launcher/output/path_pattern.h"
#include "launcher/plan/exit_code.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
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
constexpr int kLookMs = 1'000;

/// Lines on their way to standard output and standard error, in order.
class Lines {
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

/// Signals that end this command, and changes in the log's folder.
class Watch {
public:
    explicit Watch(const std::string& log) : changes_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
        sigset_t signals;
        ::sigemptyset(&signals);
        for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&signals, signal);
        ::sigprocmask(SIG_BLOCK, &signals, nullptr);
        signals_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
        const std::string folder = log.substr(0, log.rfind('/') + 1);
        ::inotify_add_watch(changes_.get(), folder.c_str(),
                            IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE);
    }

    /// Until something changes, or a second has passed.
    void wait() {
        std::array<pollfd, 2> both{{{changes_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}}};
        ::poll(both.data(), both.size(), kLookMs);
        std::array<char, 4096> read_away{};
        while (::read(changes_.get(), read_away.data(), read_away.size()) > 0) {
        }
        signalfd_siginfo info{};
        if (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
            signal_ = static_cast<int>(info.ssi_signo);
    }
    int signal() const { return signal_; }

private:
    Fd changes_, signals_;
    int signal_ = 0;
};

class LogShow {
public:
    LogShow(const history::Known& job, const LogView& view)
        : job_(job), view_(view), log_(job.entry.start.log) {}

    ShownLog run() {
        if (view_.follow) watch_.emplace(job_.entry.start.log);
        bool has_ended = !view_.follow || job_.entry.end || !runs();
        ShownLog shown{0, job_.entry.end};
        for (;;) {
            show_what_is_there(has_ended);
            shown.status = lines_.status();
            if (has_ended || shown.status != 0) break;
            watch_->wait();
            if (watch_->signal() != 0) {
                shown.status = plan::kExitSignalBase + watch_->signal();
                break;
            }
            // Its last lines are written before its end is.
            shown.end = end_now();
            has_ended = shown.end || !runs();
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
        if (has_ended && log_.is_open() && place_ == Place::before && !is_own_log_)
            note(fmt::format("nothing of this job is in {} any more", path));
        for (const std::string& line : std::exchange(last_, {})) show(line);
    }

    /// A log may have several jobs, one after the other.
    void take(std::string_view line) {
        const LogLine parsed = history::parse_log_line(line);
        if (parsed.of_dtrun && parsed.text.starts_with("dtrun: job ")) {
            const std::string begin =
                fmt::format("dtrun: job {}: ", job_.entry.start.job.substr(0, output::kJobDigits));
            const bool is_ours = parsed.text.starts_with(begin);
            if (is_ours) last_.clear();
            place_ = is_ours                   ? Place::ours
                     : place_ == Place::before ? Place::before
                                               : Place::behind;
            if (is_ours) return;
        }
        // Where the begin is not kept any more, all that is there may be ours.
        const bool is_cut = place_ == Place::before && is_own_log_ && !view_.tail;
        if (is_cut && !std::exchange(is_cut_told_, true))
            note(fmt::format("the begin of the output is not kept any more, only the last {} MiB",
                             job_.entry.start.log_kept >> 20));
        if (place_ == Place::behind || (place_ == Place::before && !is_own_log_)) return;
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

    bool runs() const {
        return history::life_of(job_.entry.start.head, here_) != history::Life::gone;
    }

    std::optional<history::JobEnd> end_now() const {
        const auto text = read_file(job_.entry.path);
        auto entry = text ? history::parse_entry(*text) : std::nullopt;
        return entry ? std::move(entry->end) : std::nullopt;
    }

    const history::Known& job_;
    const LogView& view_;
    history::KeptLog log_;
    Lines lines_;
    std::optional<Watch> watch_;
    const history::ProcessMark here_ = history::mark_of_this_process();
    const bool is_own_log_ = is_own_log();
    enum class Place { before, ours, behind } place_ = Place::before;
    std::deque<std::string> last_;
    bool is_begun_ = false, is_cut_told_ = false;
};

}  // namespace

ShownLog show_log(const history::Known& job, const LogView& view) {
    return LogShow(job, view).run();
}

}  // namespace dtrun::commands
