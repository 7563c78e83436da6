#include "worker/agent/keeper.h"

#include "base/build_id.h"
#include "base/environment.h"
#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/own_program.h"
#include "base/process/subprocess.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/warm_messages.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::agent {
namespace {

/// Without a word of the holder, which says twice a minute that it is alive: its machine is gone, or cut off.
constexpr std::chrono::seconds kHolderSilenceMax{90};
constexpr std::size_t kUnsentBytesMax = 256u
                                        << 10;  // to the holder; agents are not read beyond that

/// Of input that an agent has not taken. It gets its configuration, which is one frame, and reads; one that does not, and
/// is sent more and more, is not to fill this process.
constexpr std::size_t kUnwrittenBytesMax = 2u * FrameHeader::kPayloadBytesMax;

/// An agent, and our ends of its standard streams.
struct KeptAgent {
    KeptAgent(const asio::any_io_executor& executor, std::uint32_t number, pid_t process, Fd in,
              Fd out, Fd err)
        : stream(number),
          pid(process),
          input(executor, in.release()),
          output(executor, out.release()),
          errors(executor, err.release()) {}

    const std::uint32_t stream;
    const pid_t pid;  ///< ours until it has exited
    asio::posix::stream_descriptor input, output, errors;
    std::string unwritten;     ///< of its input
    bool is_writing = false;   ///< a coroutine writes that
    bool input_ended = false;  ///< nothing comes behind that
    unsigned open_outputs = 2;
    bool exited = false;
    std::string ending;  ///< how, in words

    /// Its lifeline ends now, whatever it has not read.
    void end_input() {
        input_ended = true;
        ::explicit_bzero(unwritten.data(), unwritten.size());
        unwritten.clear();
        boost::system::error_code ignored;
        input.close(ignored);
    }
};

class Keeper {
public:
    explicit Keeper(asio::io_context& io)
        : io_(io),
          input_(io, ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)),
          output_(io, ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)),
          sent_(io, Timer::time_point::max()),
          children_(io, SIGCHLD) {}

    /// Until the holder is gone, or says that it is over.
    asio::awaitable<void> run();

private:
    using Kept = std::shared_ptr<KeptAgent>;

    Result<void> take(const FrameView& frame);
    void start(std::uint32_t stream);
    Result<Kept> start_agent(std::uint32_t stream);
    asio::awaitable<void> pass_output(Kept agent, WarmEvent event);
    asio::awaitable<void> write_input(Kept agent);
    asio::awaitable<void> reap();
    void say(std::uint32_t stream, WarmEvent event, std::string_view bytes = {});
    asio::awaitable<void> send();
    void spawn(asio::awaitable<void> task);
    void settle(const Kept& agent);

    asio::io_context& io_;
    asio::posix::stream_descriptor input_, output_;
    std::string unsent_;
    bool is_sending_ = false;
    Timer sent_;  ///< cancelled when some of that was sent
    asio::signal_set children_;
    std::map<std::uint32_t, Kept> agents_;  ///< by stream
    bool over_ = false;
};

/// Each lives as long as the process, which ends when run() has returned.
void Keeper::spawn(asio::awaitable<void> task) {
    asio::co_spawn(io_, std::move(task), [](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
    });
}

asio::awaitable<void> Keeper::run() {
    unsent_ = fmt::format("dtrun-agent {} {}\n", kProtocolVersion,
                          elf_build_id("/proc/self/exe").value_or("none"));
    is_sending_ = true;
    spawn(send());
    spawn(reap());
    std::string received;
    std::array<char, 16384> bytes;
    while (!over_) {
        DeadlineGuard guard(input_, after(kHolderSilenceMax));
        const auto buffer = asio::buffer(bytes);
        const auto [error, n] = co_await input_.async_read_some(buffer, use_tuple);
        if (error) co_return;
        received.append(bytes.data(), n);
        ::explicit_bzero(bytes.data(), n);
        std::string_view rest = received;
        for (;;) {
            const auto frame = next_frame(rest);
            if (!frame) co_return;
            if (!*frame) break;
            if (!take(**frame)) co_return;
        }
        const std::size_t used = received.size() - rest.size();
        ::explicit_bzero(received.data(), used);
        received.erase(0, used);
    }
}

Result<void> Keeper::take(const FrameView& frame) {
    if (frame.type != FrameType::warm_stream)
        return fail(Errc::invalid_input, "unexpected frame of type {}",
                    static_cast<int>(frame.type));
    auto said = decode<WarmStream>(frame.payload);
    if (!said) return std::unexpected(said.error());
    const auto found = agents_.find(said->stream);
    const Kept agent = found == agents_.end() ? nullptr : found->second;
    switch (said->event) {
        case WarmEvent::alive:
            say(0, WarmEvent::alive);
            break;
        case WarmEvent::open:
            if (!agent) start(said->stream);
            break;
        case WarmEvent::input:
            if (agent) agent->unwritten += said->bytes;
            if (agent && agent->unwritten.size() > kUnwrittenBytesMax) agent->end_input();
            break;
        case WarmEvent::input_end:
            if (agent) agent->input_ended = true;
            over_ = over_ || said->stream == 0;
            break;
        default:
            return fail(Errc::invalid_input, "only agents say {}", static_cast<int>(said->event));
    }
    ::explicit_bzero(said->bytes.data(), said->bytes.size());
    const bool is_told = said->event == WarmEvent::input || said->event == WarmEvent::input_end;
    if (agent && is_told && !std::exchange(agent->is_writing, true)) spawn(write_input(agent));
    return {};
}

void Keeper::start(std::uint32_t stream) {
    auto started = start_agent(stream);
    if (!started) {
        say(stream, WarmEvent::errors, started.error().message + "\n");
        say(stream, WarmEvent::output_end);
        return say(stream, WarmEvent::exited, "it cannot be started");
    }
    spawn(pass_output(*started, WarmEvent::output));
    spawn(pass_output(*started, WarmEvent::errors));
}

Result<Keeper::Kept> Keeper::start_agent(std::uint32_t stream) {
    const auto program = own_program();
    auto in = make_pipe();
    auto out = make_pipe();
    auto err = make_pipe();
    if (!program) return std::unexpected(program.error());
    for (const auto* made : {&in, &out, &err})
        if (!*made) return std::unexpected(made->error());
    const std::vector<std::string> argv{*program};
    const std::vector<std::string> env = own_environment();
    ProcessPlan plan{.path = *program, .argv = argv, .env = env};
    plan.descriptors = {{in->read.get(), STDIN_FILENO},
                        {out->write.get(), STDOUT_FILENO},
                        {err->write.get(), STDERR_FILENO}};
    plan.close_others = true;
    plan.group = ProcessPlan::Group::own_session;
    const auto pid = spawn_process(plan);
    if (!pid) return std::unexpected(pid.error());
    auto agent = std::make_shared<KeptAgent>(io_.get_executor(), stream, *pid, std::move(in->write),
                                             std::move(out->read), std::move(err->read));
    agents_.emplace(stream, agent);
    return agent;
}

/// Of its standard output or standard error, to their end.
asio::awaitable<void> Keeper::pass_output(Kept agent, WarmEvent event) {
    auto& from = event == WarmEvent::output ? agent->output : agent->errors;
    std::array<char, 4096> bytes;
    for (;;) {
        while (unsent_.size() > kUnsentBytesMax) co_await sent_.async_wait(use_tuple);
        const auto buffer = asio::buffer(bytes);
        const auto [error, n] = co_await from.async_read_some(buffer, use_tuple);
        if (error) break;
        say(agent->stream, event, {bytes.data(), n});
    }
    if (--agent->open_outputs > 0) co_return;
    say(agent->stream, WarmEvent::output_end);
    settle(agent);
}

/// Until nothing is left to be written. An agent that has ended reads nothing, which its end tells.
asio::awaitable<void> Keeper::write_input(Kept agent) {
    while (!agent->unwritten.empty()) {
        std::string now = std::exchange(agent->unwritten, {});
        const auto buffer = asio::buffer(now);
        const auto [error, n] = co_await asio::async_write(agent->input, buffer, use_tuple);
        ::explicit_bzero(now.data(), now.size());
        if (error) break;
    }
    agent->is_writing = false;
    boost::system::error_code ignored;
    if (agent->input_ended) agent->input.close(ignored);
}

asio::awaitable<void> Keeper::reap() {
    for (;;) {
        const auto [error, signal] = co_await children_.async_wait(use_tuple);
        if (error) co_return;
        int status = 0;
        for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
            const auto found = std::ranges::find_if(agents_, [pid](const auto& entry) {
                return entry.second->pid == pid && !entry.second->exited;
            });
            if (found == agents_.end()) continue;
            const Kept agent = found->second;
            agent->exited = true;
            agent->ending = describe_exit(status);
            settle(agent);
        }
    }
}

/// The end is the last that is said of an agent.
void Keeper::settle(const Kept& agent) {
    if (!agent->exited || agent->open_outputs > 0) return;
    say(agent->stream, WarmEvent::exited, agent->ending);
    agents_.erase(agent->stream);
}

void Keeper::say(std::uint32_t stream, WarmEvent event, std::string_view bytes) {
    WarmStream said;
    said.stream = stream;
    said.event = event;
    said.bytes = bytes;
    unsent_ += encode(said);
    if (!std::exchange(is_sending_, true)) spawn(send());
}

asio::awaitable<void> Keeper::send() {
    while (!unsent_.empty()) {
        const std::string now = std::exchange(unsent_, {});
        const auto buffer = asio::buffer(now);
        const auto [error, n] = co_await asio::async_write(output_, buffer, use_tuple);
        sent_.cancel();
        if (error) break;  // the input ends, too
    }
    is_sending_ = false;
}

}  // namespace

int run_keeper() {
    ::prctl(PR_SET_NAME, "dtrun-keeper");
    asio::io_context io(1);
    Keeper keeper(io);
    asio::co_spawn(io, keeper.run(), [&io](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
        io.stop();
    });
    io.run();
    ::_exit(0);  // what agents are told by is closed with it
}

}  // namespace dtrun::agent
