#include "launcher/commands/top_run.h"

#include "base/fd.h"
#include "base/loop/deadline.h"
#include "base/loop/task_group.h"
#include "base/strings.h"
#include "base/terminal.h"
#include "base/text_layout.h"
#include "launcher/cli/command.h"
#include "launcher/commands/ask_job.h"
#include "launcher/output/path_pattern.h"
#include "launcher/plan/exit_code.h"
#include "launcher/watch/fields.h"
#include "launcher/watch/json_line.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dtrun::commands {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kViewLimit{1'000};
constexpr milliseconds kBetweenLooks{600};  // where it is shown once
constexpr milliseconds kLastWord{2'000};    // of a job that has ended
constexpr std::size_t kTextBytesMax = 400;

/// The screen of a terminal, which has what was there before when this ends.
class Screen {
public:
    Screen() { enter(); }
    ~Screen() { leave(); }
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;

    void enter() { put("\x1b[?1049h\x1b[?25l"); }
    void leave() { put("\x1b[?25h\x1b[?1049l"); }
    /// Each line replaces what was there, so that nothing flickers.
    void show(std::string_view lines) {
        std::string text = "\x1b[H";
        for (const char c : lines) text += c == '\n' ? "\x1b[K\r\n" : std::string(1, c);
        // Behind the last line there is none: it would move the others up.
        if (text.ends_with("\r\n")) text.resize(text.size() - 2);
        put(text + "\x1b[J");
    }
    static watch::TopShape shape() {
        winsize size{};
        const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
        return {.rows = known ? size.ws_row : 24u,
                .columns = known ? size.ws_col : 80u,
                .color = color_wish() != ColorWish::never};
    }

private:
    static void put(std::string_view text) {
        if (const auto done = write_all(STDOUT_FILENO, text); !done) return;
    }
};

/// Keys of the terminal that is our standard input, one by one and not shown. There are none where it is no terminal,
/// or where we are in its background: reading it there would stop us.
class Keys {
public:
    explicit Keys(const asio::any_io_executor& executor) : keys_(executor) {
        if (::isatty(STDIN_FILENO) != 1) return;
        // Opened anew: what we set on it is not for who has started us.
        Fd own(::open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        if (own) keys_.assign(own.release());
        take();
    }
    ~Keys() { give_back(); }
    Keys(const Keys&) = delete;
    Keys& operator=(const Keys&) = delete;

    void take() {
        if (taken_ || !keys_.is_open() || ::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) return;
        if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
        termios single = before_;
        single.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
        taken_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &single) == 0;
    }
    void give_back() noexcept {
        if (std::exchange(taken_, false)) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }
    /// Returns when 'q' was pressed, or when there are no keys any more.
    asio::awaitable<bool> wait_for_q() {
        while (keys_.is_open()) {
            const auto [error] =
                co_await keys_.async_wait(asio::posix::descriptor_base::wait_read, use_tuple);
            if (error) co_return false;
            char bytes[64];
            const bool is_ours = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
            const ssize_t n = is_ours ? ::read(keys_.native_handle(), bytes, sizeof bytes) : 0;
            if (n <= 0) co_return false;
            const std::string_view typed(bytes, static_cast<std::size_t>(n));
            if (typed.find_first_of("qQ") != std::string_view::npos) co_return true;
        }
        co_return false;
    }
    void stop() noexcept {
        boost::system::error_code ignored;
        if (keys_.is_open()) keys_.close(ignored);
    }

private:
    asio::posix::stream_descriptor keys_;
    termios before_{};
    bool taken_ = false;
};

/// Shows a job once.
asio::awaitable<int> show_once(control::ControlClient& client, const TopCommand& command) {
    // What takes time to find out, as what GPUs do, is in the second look; and processor time is that between them.
    auto view = co_await view_of(client, kViewLimit);
    Timer pause(co_await asio::this_coro::executor, kBetweenLooks);
    if (view) co_await pause.async_wait(use_tuple);
    if (view) view = co_await view_of(client, kViewLimit);
    if (!view) co_return status_of(view.error());
    co_return cli::print(command.json ? watch::json_line(*view) + "\n"
                                      : watch::top_text(*view, command.order, {}));
}

/// Shows a job again and again.
class TopRun {
public:
    TopRun(asio::io_context& io, const control::JobSocket& job, const TopCommand& command)
        : client_(io.get_executor(), job),
          ending_(io.get_executor(), job),
          command_(command),
          signals_(io, SIGINT, SIGTERM, SIGWINCH),
          keys_(io.get_executor()),
          wait_(io),
          last_word_(io),
          tasks_(io.get_executor()),
          end_(io.get_executor()) {
        for (const int signal : {SIGHUP, SIGQUIT, SIGTSTP, SIGCONT}) signals_.add(signal);
    }

    asio::awaitable<int> run() {
        tasks_.spawn(watch_signals());
        tasks_.spawn(watch_keys());
        end_.spawn(watch_end());
        const std::optional<Error> over = co_await show_until_over();
        // That it has ended is known before how, where its dtrun is gone at once.
        last_word_.expires_after(kLastWord);
        const bool has_ended = over && over->code == Errc::closed;
        if (has_ended && !is_end_known_) co_await last_word_.async_wait(use_tuple);
        keys_.stop();
        tasks_.stop();
        co_await tasks_.join();
        ending_.stop();  // not by cancellation: a client's run() has more to await
        co_await end_.join();
        keys_.give_back();
        if (signal_ != 0) co_return signal_ == SIGINT ? 0 : plan::kExitSignalBase + signal_;
        if (!ending_text_.empty()) std::fprintf(stderr, "dtrun: %s\n", ending_text_.c_str());
        if (!over || !ending_text_.empty()) co_return 0;
        co_return status_of(*over);
    }

private:
    bool is_over() const { return signal_ != 0 || wants_no_more_ || !ending_text_.empty(); }

    /// \return why it cannot be shown any more; nothing: the user has enough, or it has told its end
    asio::awaitable<std::optional<Error>> show_until_over() {
        Screen screen;
        screen_ = &screen;
        std::optional<Error> trouble;
        while (!is_over() && !trouble) {
            auto view = co_await view_of(client_, kViewLimit);
            // A machine that has much to do may not answer for once.
            if (!view && view.error().code != Errc::timed_out) trouble = view.error();
            if (view) view_ = std::move(*view);
            if (is_over() || trouble) break;
            draw();
            wait_.expires_after(command_.interval);
            co_await wait_.async_wait(use_tuple);
        }
        screen_ = nullptr;
        if (is_over()) co_return std::nullopt;
        co_return trouble;
    }

    void draw() {
        if (screen_ == nullptr || view_.empty()) return;
        screen_->show(watch::top_text(view_, command_.order, Screen::shape()));
    }

    void look_no_more() {
        client_.stop();
        wait_.cancel();
        last_word_.cancel();
    }

    asio::awaitable<void> watch_keys() {
        wants_no_more_ = co_await keys_.wait_for_q();
        if (wants_no_more_) look_no_more();
    }

    /// The job's dtrun answers this when the job has ended.
    asio::awaitable<void> watch_end() {
        ControlRequest ask;
        ask.command = ControlCommand::view;
        ask.limit_ms = control::kUntilTheEnd;
        std::string text;
        const std::function<void(const Answer&)> take = [&text](const Answer& answer) {
            text += answer.text;
        };
        const auto code = co_await ending_.run(ask, take);
        is_end_known_ = true;
        last_word_.cancel();
        const auto view = watch::parse_object(text);
        if (code && view && watch::text_of(*view, "state") == "ended") {
            // It is without ranks: what is wrong was found before.
            std::string_view how = "has ended";
            const boost::json::array& findings = watch::list_of(*view, "findings");
            if (!findings.empty()) how = watch::text_of(watch::object_of(findings[0]), "text");
            const std::string id(watch::text_of(*view, "job"));
            ending_text_ = fmt::format("job {} {}", escaped(id.substr(0, output::kJobDigits)),
                                       escaped(how, kTextBytesMax));
        }
        if (!ending_text_.empty()) look_no_more();
    }

    asio::awaitable<void> watch_signals() {
        for (;;) {
            const auto [error, signal] = co_await signals_.async_wait(use_tuple);
            if (error) co_return;
            if (signal == SIGTSTP && screen_ != nullptr) {
                screen_->leave();
                keys_.give_back();
                ::raise(SIGSTOP);
                keys_.take();
                screen_->enter();
            }
            if (signal == SIGCONT) keys_.take();
            if (signal == SIGTSTP || signal == SIGWINCH || signal == SIGCONT) {
                draw();
                continue;
            }
            signal_ = signal;
            look_no_more();
        }
    }

    control::ControlClient client_;  ///< asks again and again
    control::ControlClient ending_;  ///< has asked for the end
    const TopCommand& command_;
    asio::signal_set signals_;
    Keys keys_;
    Timer wait_, last_word_;
    TaskGroup tasks_;
    TaskGroup end_;  ///< has watch_end()
    boost::json::object view_;
    std::string ending_text_;  ///< how the job has ended
    Screen* screen_ = nullptr;
    bool is_end_known_ = false;  ///< or never will be
    bool wants_no_more_ = false;
    int signal_ = 0;  ///< that ends us
};

}  // namespace

int show_top(asio::io_context& io, control::JobSocket job, const TopCommand& command) {
    const bool has_screen = ::isatty(STDOUT_FILENO) == 1 && !is_terminal_dumb();
    const bool is_live = has_screen && !command.once && !command.json;
    if (is_live) {
        TopRun top(io, job, command);
        return run_to_end(io, top.run());
    }
    control::ControlClient client(io.get_executor(), std::move(job));
    return run_to_end(io, show_once(client, command));
}

}  // namespace dtrun::commands
