#include "launcher/discovery/host_watch.h"

#include "base/environment.h"
#include "base/log.h"
#include "base/strings.h"

#include <sys/inotify.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>

namespace dtrun::discovery {
namespace {

/// A file system over a network does not tell of changes that others make.
constexpr std::chrono::seconds kFileInterval{5};
constexpr std::chrono::milliseconds kSettle{50};  // for whoever writes the file in several pieces
constexpr std::chrono::milliseconds kEndLimit{1'000};  // from the end of the output to the exit

/// Tells of changes in the folder of a file, as it may be replaced by another one; -1 without such news.
int watch_folder(const std::string& file) {
    if (file.empty()) return -1;
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    Fd events(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    constexpr std::uint32_t kWhat = IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_DELETE;
    if (!events ||
        ::inotify_add_watch(events.get(), folder.empty() ? "." : folder.c_str(), kWhat) < 0)
        return -1;
    return events.release();
}

}  // namespace

HostWatch::HostWatch(asio::any_io_executor executor, HostSource source, const HostList& first,
                     std::function<bool(const std::string&)> has_agent,
                     std::function<void(const HostChanges&)> apply)
    : executor_(executor),
      source_(std::move(source)),
      listings_(source_.name, first),
      has_agent_(std::move(has_agent)),
      apply_(std::move(apply)),
      timer_(executor),
      file_events_(executor),
      tasks_(executor) {
    if (const int events = watch_folder(source_.file); events >= 0) file_events_.assign(events);
}

void HostWatch::stop() noexcept {
    stopped_ = true;
    timer_.cancel();
    boost::system::error_code ignored;
    file_events_.close(ignored);
    if (!process_) return;
    process_->kill();
}

asio::awaitable<void> HostWatch::join() {
    stop();
    tasks_.stop();
    co_await tasks_.join();
}

asio::awaitable<void> HostWatch::run() {
    for (;;) {
        co_await wait();
        if (stopped_) co_return;
        auto hosts = co_await list();
        if (stopped_) co_return;
        if (!hosts) {
            if (const auto note = listings_.failed(hosts.error().message)) log::warn("{}", *note);
            continue;
        }
        const HostChanges changes = listings_.read(*hosts, has_agent_);
        for (const std::string& note : changes.notes) log::warn("{}", note);
        apply_(changes);
    }
}

asio::awaitable<void> HostWatch::wait() {
    if (file_events_.is_open()) co_return co_await wait_for_file();
    timer_.expires_after(source_.interval);
    co_await timer_.async_wait(use_tuple);
}

/// Waits until the file may have changed.
asio::awaitable<void> HostWatch::wait_for_file() {
    {
        std::array<char, 4096> events;
        const auto buffer = asio::buffer(events);
        DeadlineGuard guard(file_events_, after(kFileInterval));
        co_await file_events_.async_read_some(buffer, use_tuple);
    }
    // Others may write other files there all the time.
    timer_.expires_at(std::max(after(kSettle), last_run_ + source_.interval));
    co_await timer_.async_wait(use_tuple);
}

/// There is never more than one process of ours, even if it cannot be ended.
asio::awaitable<Result<HostList>> HostWatch::list() {
    if (process_ && (co_await process_->ending(after(kEndLimit))).empty())
        co_return fail(Errc::timed_out, "it has not ended, though it was killed");
    process_.reset();
    auto started = transport::start_process(executor_, source_.command, own_environment(), SIGKILL);
    if (!started) co_return std::unexpected(started.error());
    process_ = std::move(*started);
    last_run_ = Clock::now();
    const auto text = co_await run_command(*process_);
    if (!text) process_->kill();
    tell_errors(*process_);
    if (!(co_await process_->ending(after(kEndLimit))).empty()) process_.reset();
    if (!text) co_return std::unexpected(text.error());
    co_return source_.parse(*text);
}

/// What the command prints, if it ends well.
asio::awaitable<Result<std::string>> HostWatch::run_command(transport::Process& process) {
    process.close_input();
    std::string text;
    std::array<char, 4096> piece;
    const Deadline deadline = after(kRunLimit);
    for (;;) {
        const auto n = co_await process.read(piece, deadline);
        if (!n && n.error().code == Errc::timed_out)
            co_return fail(Errc::timed_out, "it has not ended within {} s", kRunLimit.count());
        if (!n) co_return std::unexpected(n.error());
        if (*n == 0) break;
        text.append(piece.data(), *n);
        if (text.size() > kListBytesMax)
            co_return fail(Errc::invalid_input, "it prints more than {} bytes", kListBytesMax);
    }
    const std::string ending = co_await process.ending(deadline);
    if (ending != "exit status 0")
        co_return fail(Errc::internal, "it has ended with {}", ending.empty() ? "nothing" : ending);
    co_return text;
}

/// Each text once, until there is another.
void HostWatch::tell_errors(transport::Process& process) {
    const std::string said(trim(process.take_errors()));
    if (!said.empty() && said != told_) log::warn("{}: {}", source_.name, said);
    told_ = said;
}

}  // namespace dtrun::discovery
