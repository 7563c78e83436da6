#include "worker/ranks/python_dump.h"

#include "base/fd.h"
#include "worker/ranks/stack_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace dtrun::ranks {
namespace {

using std::chrono::milliseconds;
namespace fs = std::filesystem;

constexpr int kSignal = SIGURG;
/// What /proc/PID/fd calls the file of a process.
constexpr std::string_view kInMemory = "/memfd:dtrun-stacks (deleted)";
constexpr std::string_view kUnlinked = "/dev/shm/dtrun-stacks-";
constexpr int kDescriptorsMax =
    4'096;  // of a process that are looked at; the file is among its first
constexpr std::size_t kTextBytesMax = 1u << 20;

constexpr milliseconds kLimit{1'500};
constexpr milliseconds kSilence{250};  // after which one that has handled the signal will not write
constexpr milliseconds kPauseMin{1}, kPauseMax{20};

/// A thread, as far as the signal is concerned.
struct ThreadState {
    char state = 0;  ///< as in /proc/PID/stat
    bool pending = false;
    bool blocked = false;
    bool caught = false;
};

std::optional<ThreadState> thread_state(pid_t pid, pid_t thread) {
    const auto text = read_file(fmt::format("/proc/{}/task/{}/status", pid, thread), 64u << 10);
    if (!text || text->empty()) return std::nullopt;
    const auto has_signal = [&text](std::string_view mask) {
        const std::string value(status_value(*text, mask));
        return (std::strtoull(value.c_str(), nullptr, 16) >> (kSignal - 1) & 1) != 0;
    };
    const std::string_view state = status_value(*text, "State");
    return ThreadState{.state = state.empty() ? '?' : state.front(),
                       .pending = has_signal("SigPnd"),
                       .blocked = has_signal("SigBlk"),
                       .caught = has_signal("SigCgt")};
}

/// Where the file is that the process's faulthandler writes to; empty: it has none.
std::string find_file(pid_t pid) {
    int looked_at = 0;
    std::error_code error;
    for (fs::directory_iterator at(fmt::format("/proc/{}/fd", pid), error), end;
         !error && at != end; at.increment(error)) {
        if (++looked_at > kDescriptorsMax) break;
        std::error_code gone;
        const std::string link = fs::read_symlink(at->path(), gone).native();
        if (gone || (link != kInMemory && !link.starts_with(kUnlinked))) continue;
        return at->path().native();
    }
    return {};
}

/// A question to one process, from the signal to what it has written.
class Question {
public:
    explicit Question(pid_t pid) : pid_(pid), path_(find_file(pid)) {
        if (!path_.empty()) file_ = Fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
        struct stat info {};
        over_ = !file_ || ::fstat(file_.get(), &info) != 0 || !S_ISREG(info.st_mode);
        which_ = {info.st_dev, info.st_ino};
    }

    bool over() const { return over_; }
    /// Processes that were forked have one file, and one position in it, so that they have to write in turn.
    std::pair<dev_t, ino_t> file() const { return which_; }

    /// Asks first, then looks for the answer.
    void go_on(Deadline now) {
        if (thread_ == 0)
            ask(now);
        else
            look(now);
    }

    PythonDump take() {
        if (thread_ == 0 && !over_) return {{}, "another that it was forked with has not answered"};
        if (thread_ == 0) return {{}, std::move(why_)};
        PythonDump dump{taken_text(), {}};
        if (dump.text.empty()) dump.why = why_.empty() ? why_silent() : std::move(why_);
        return dump;
    }

private:
    void ask(Deadline now) {
        const auto main = thread_state(pid_, pid_);
        over_ = true;
        if (!main || !main->caught) return;
        why_ = why_stopped(pid_);
        if (!why_.empty()) return;
        const bool can_main = !main->blocked && main->state != 'Z';
        const pid_t thread = can_main ? pid_ : another_thread();
        if (thread == 0) return void(why_ = "it blocks SIGURG");
        // It may have executed something else since, or be another process of this number.
        struct stat info {};
        const bool is_same = ::stat(path_.c_str(), &info) == 0 && info.st_dev == which_.first &&
                             info.st_ino == which_.second;
        if (!is_same) return;
        begin_ = end_ = size();
        if (::syscall(SYS_tgkill, pid_, thread, kSignal) != 0) return;
        thread_ = thread;
        asked_at_ = now;
        over_ = false;
    }

    /// While its handler runs the thread blocks the signal.
    void look(Deadline now) {
        const bool has_begun = size() > begin_;  // asked first: it may begin at any moment
        const auto thread = thread_state(pid_, thread_);
        end_ = size();  // what comes behind it is of the next process that has this file
        if (!thread) return void(over_ = true);
        if (thread->pending || thread->blocked) return;
        over_ = has_begun || now - asked_at_ > kSilence;
        if (over_ && end_ == begin_) why_ = "its SIGURG is the program's own";
    }

    pid_t another_thread() const {
        std::error_code error;
        for (fs::directory_iterator at(fmt::format("/proc/{}/task", pid_), error), end;
             !error && at != end; at.increment(error)) {
            const auto thread = static_cast<pid_t>(std::atoi(at->path().filename().c_str()));
            const auto state = thread_state(pid_, thread);
            if (state && !state->blocked && state->state != 'Z') return thread;
        }
        return 0;
    }

    std::string why_silent() const {
        const auto thread = thread_state(pid_, thread_);
        if (thread && thread->state == 'D') return "it waits in the kernel, and cannot answer";
        return thread ? "it has not answered in time" : "it has ended";
    }

    off_t size() const {
        struct stat info {};
        return ::fstat(file_.get(), &info) == 0 ? info.st_size : 0;
    }

    std::string taken_text() {
        const off_t bytes = std::max<off_t>(end_ - begin_, 0);
        std::string text(std::min(static_cast<std::size_t>(bytes), kTextBytesMax), '\0');
        const ssize_t n = ::pread(file_.get(), text.data(), text.size(), begin_);
        text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
        // Its memory is given back. The next text begins where this one ends.
        if (bytes > 0)
            ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, begin_ + bytes);
        return text;
    }

    pid_t pid_;
    std::string path_;
    Fd file_;
    std::pair<dev_t, ino_t> which_{};
    pid_t thread_ = 0;           ///< that was sent the signal; 0: none yet
    off_t begin_ = 0, end_ = 0;  ///< of its text
    Deadline asked_at_{};
    std::string why_;
    bool over_ = false;
};

/// \return whether some are not over
bool go_on(std::vector<Question>& questions, Deadline now) {
    std::set<std::pair<dev_t, ino_t>> written_to;
    bool wait = false;
    for (Question& question : questions) {
        if (question.over()) continue;
        if (written_to.insert(question.file()).second) question.go_on(now);
        if (question.over()) written_to.erase(question.file());
        wait = wait || !question.over();
    }
    return wait;
}

}  // namespace

asio::awaitable<std::vector<PythonDump>> ask_python(std::vector<pid_t> pids, Deadline until) {
    const asio::any_io_executor executor = co_await asio::this_coro::executor;
    std::vector<Question> questions;
    for (const pid_t pid : pids) {
        co_await asio::post(executor, asio::use_awaitable);  // /proc takes a while on a busy host
        questions.emplace_back(pid);
    }
    until = std::min(until, after(kLimit));
    milliseconds pause = kPauseMin;
    Timer timer(executor);
    // The kernel tells nobody that a handler has returned.
    while (go_on(questions, Clock::now()) && Clock::now() < until) {
        timer.expires_after(pause);
        co_await timer.async_wait(use_tuple);
        pause = std::min(pause * 2, kPauseMax);
    }
    std::vector<PythonDump> dumps;
    for (Question& question : questions) dumps.push_back(question.take());
    co_return dumps;
}

bool listens(pid_t pid) {
    return !find_file(pid).empty();
}

std::string why_stopped(pid_t pid) {
    const auto main = thread_state(pid, pid);
    if (main && main->state == 'T')
        return fmt::format("it is stopped by a signal: `kill -CONT {}` lets it go on", pid);
    if (main && main->state == 't') return "it is stopped by a debugger";
    return {};
}

}  // namespace dtrun::ranks
