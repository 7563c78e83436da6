#include "worker/mpi/pmix_process.h"

#include "base/log.h"
#include "base/process/subprocess.h"
#include "base/strings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

extern "C" {
extern const char dtrun_pmix_program_begin[];
extern const char dtrun_pmix_program_end[];
}

namespace dtrun::mpi {
namespace {

constexpr int kSocketOfChild = 3;
constexpr std::size_t kLineBytesMax = 4096;
constexpr std::size_t kLastLines = 10;
constexpr std::chrono::seconds kOutputEnd{1};

std::string_view program() {
    return {dtrun_pmix_program_begin, dtrun_pmix_program_end};
}

/// Empty where a policy forbids to execute what is in memory.
Fd program_in_memory() {
    constexpr unsigned executable = 0x10;  // MFD_EXEC; what older kernels do anyway
    int fd = ::memfd_create("dtrun-pmix", MFD_CLOEXEC | executable);
    if (fd < 0 && errno == EINVAL) fd = ::memfd_create("dtrun-pmix", MFD_CLOEXEC);
    Fd file(fd);
    if (file && !write_all(file.get(), program())) file.reset();
    // The child has other descriptors at the first numbers.
    if (file) file.reset(::fcntl(file.get(), F_DUPFD_CLOEXEC, kSocketOfChild + 1));
    return file;
}

/// Whether a setting of the user's environment is about the server of another launcher: where it finds
/// plug-ins (of its own version), how clients prove who they are, and at which addresses it listens.
bool is_of_other_server(std::string_view name) {
    return name == "PMIX_MCA_mca_base_component_path" || name.starts_with("PMIX_MCA_psec") ||
           name.starts_with("PMIX_MCA_ptl");
}

/// Libraries are found as ranks find them. Of the rest a server needs little, and must not see what an
/// outer launcher has told the ranks' environment.
std::vector<std::string> environment(const PmixProcess::Options& options) {
    constexpr std::array<std::string_view, 8> names{
        "PATH",         "HOME",          "LANG",        "LC_ALL", "LD_LIBRARY_PATH",
        "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"};
    std::vector<std::string> kept;
    for (const auto& [name, value] : options.env) {
        const bool tunes = name.starts_with("PMIX_MCA_") || name.starts_with("HWLOC_");
        if (is_of_other_server(name)) continue;
        if (tunes || std::ranges::find(names, name) != names.end())
            kept.push_back(name + "=" + value);
    }
    if (!options.shared_memory) kept.emplace_back("PMIX_MCA_gds=hash");
    return kept;
}

/// What the child executes: the program in memory, else one that it writes to a file first.
struct Executed {
    int in_memory;
    const char* file;
    std::string_view failure;  ///< what to say if it can be executed nowhere, a PmixFailed
};

/// As write_all(), which allocates when it fails.
/// \return whether all of it was written
bool write_whole(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
}

/// \return a descriptor to execute, or -1
int program_in_file(const char* path) {
    constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    const int file = ::open(path, flags, 0700);
    if (file < 0) return -1;
    const bool whole = write_whole(file, program());
    ::close(file);  // what is open for writing cannot be executed
    return whole ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
}

/// In the child: only async-signal-safe calls.
void execute(const void* context, char* const* argv, char* const* env) {
    const auto& what = *static_cast<const Executed*>(context);
    ::syscall(SYS_execveat, what.in_memory, "", argv, env, AT_EMPTY_PATH);
    const int in_file = program_in_file(what.file);
    ::syscall(SYS_execveat, in_file, "", argv, env, AT_EMPTY_PATH);
    write_whole(kSocketOfChild, what.failure);
    ::_exit(126);
}

std::string ended_how(const Fd& pidfd) {
    // The process's end of the socket closes a moment before the process has ended. Nobody reaps it
    // before we return to the loop, or it was reaped before.
    constexpr int moment_ms = 100;
    pollfd wait{pidfd.get(), POLLIN, 0};
    siginfo_t info{};
    if (!pidfd || ::poll(&wait, 1, moment_ms) != 1 ||
        ::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
        return "ended";
    if (info.si_code == CLD_EXITED) return fmt::format("ended with status {}", info.si_status);
    return fmt::format("was ended by signal {} ({})", info.si_status, strsignal(info.si_status));
}

}  // namespace

/// The child finds out where it can be executed, and says so itself: that may take as long as a file
/// system or a busy machine likes, and nobody here waits for it.
Result<std::shared_ptr<PmixProcess>> PmixProcess::start(asio::any_io_executor executor,
                                                        const Options& options) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return fail(Errc::internal, "PMIx: socketpair: {}", strerror(errno));
    Fd ours(ends[0]);
    const Fd theirs(ends[1]);
    auto output = make_pipe();
    if (!output) return fail(output.error(), "PMIx");
    const Fd in_memory = program_in_memory();
    const std::string file = options.directory + "/dtrun-pmix";
    const Bytes failure = pmix_encode(PmixFailed{
        static_cast<std::uint8_t>(Errc::denied),
        fmt::format(
            "PMIx needs a program of its own, which can be executed neither in memory nor in "
            "{} (--mpi mpirun does without)",
            options.directory)});
    const std::vector<std::string> words{"dtrun-pmix", fmt::format("{}", kSocketOfChild),
                                         options.directory, options.host_name, options.library};
    const std::vector<std::string> variables = environment(options);
    const Executed what{in_memory.get(), file.c_str(), failure};
    ProcessPlan plan{.path = file, .argv = words, .env = variables};
    plan.descriptors = {{ProcessPlan::kNull, STDIN_FILENO},
                        {output->write.get(), STDOUT_FILENO},
                        {output->write.get(), STDERR_FILENO},
                        {theirs.get(), kSocketOfChild}};
    plan.close_others = true;
    plan.group = ProcessPlan::Group::own_session;
    plan.death_signal = SIGKILL;
    plan.execute = execute;
    plan.execute_context = &what;
    auto spawned = spawn_without_waiting(plan);
    if (!spawned) return fail(spawned.error(), "PMIx");
    return std::shared_ptr<PmixProcess>(
        new PmixProcess(executor, spawned->pid, std::move(ours), std::move(output->read)));
}

PmixProcess::PmixProcess(asio::any_io_executor executor, pid_t pid, Fd socket, Fd output)
    : pid_(pid),
      // It is not reaped before we return to the loop, so the number is its own.
      pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))),
      socket_(executor, Unix(), socket.release()),
      output_(executor, output.release()),
      more_(executor, Timer::time_point::max()),
      output_end_(executor) {}

void PmixProcess::send(Bytes frame) {
    unsent_.push_back(std::move(frame));
    more_.cancel();
}

asio::awaitable<void> PmixProcess::write() {
    for (;;) {
        while (unsent_.empty() && !ending_) co_await more_.async_wait(use_tuple);
        if (unsent_.empty()) break;
        const std::string bytes = std::move(unsent_.front());
        unsent_.pop_front();
        const auto buffer = asio::buffer(bytes);
        const auto [error, size] = co_await asio::async_write(socket_, buffer, use_tuple);
        if (error) co_return;  // whoever reads sees the end
    }
    boost::system::error_code ignored;
    socket_.shutdown(Unix::socket::shutdown_send, ignored);
}

asio::awaitable<std::optional<PmixFrame>> PmixProcess::read() {
    std::array<char, 64 << 10> bytes;
    for (;;) {
        auto frame = frames_.next();
        if (!frame) co_return std::nullopt;
        if (*frame) co_return std::move(*frame);
        const auto buffer = asio::buffer(bytes);
        const auto [error, size] = co_await socket_.async_read_some(buffer, use_tuple);
        if (error) co_return std::nullopt;
        frames_.feed({bytes.data(), size});
    }
}

asio::awaitable<void> PmixProcess::read_output() {
    std::array<char, 4096> bytes;
    while (!output_ended_) {
        const auto buffer = asio::buffer(bytes);
        const auto [error, size] = co_await output_.async_read_some(buffer, use_tuple);
        take_lines({bytes.data(), size});
        output_ended_ = bool(error);
    }
    take_lines("\n");
    output_end_.cancel();
}

void PmixProcess::take_lines(std::string_view bytes) {
    line_ += bytes;
    for (;;) {
        const std::size_t end = line_.find('\n');
        if (end == line_.npos && line_.size() <= kLineBytesMax) return;
        const std::string line = line_.substr(0, end);
        line_.erase(0, end == line_.npos ? end : end + 1);
        if (trim(line).empty()) continue;
        log::info("dtrun-pmix: {}", line);
        last_lines_.push_back(line);
        if (last_lines_.size() > kLastLines) last_lines_.pop_front();
    }
}

void PmixProcess::ask_to_end() {
    ending_ = true;
    more_.cancel();
}

void PmixProcess::kill() noexcept {
    if (pidfd_) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

asio::awaitable<std::string> PmixProcess::how_it_ended() {
    std::string text = ended_how(pidfd_);
    output_end_.expires_after(kOutputEnd);
    if (!output_ended_) co_await output_end_.async_wait(use_tuple);
    for (const std::string& line : last_lines_) text += "\n  " + line;
    co_return text;
}

}  // namespace dtrun::mpi
