#include "base/process/subprocess.h"

#include "base/process/child_start.h"
#include "base/signal_names.h"
#include "base/strings.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace dtrun {
namespace {

/// What execvpe() would try for `path`, in this order.
std::vector<std::string> files_of(const std::string& path) {
    if (path.empty() || path.contains('/')) return {path};
    const char* const search = std::getenv("PATH");
    std::vector<std::string> files;
    for (const std::string_view folder : split(search != nullptr ? search : "/bin:/usr/bin", ':'))
        files.push_back(folder.empty() ? path : fmt::format("{}/{}", folder, path));
    return files;
}

/// The signals of a mask as the kernel has them.
std::uint64_t kernel_mask(const sigset_t* mask) {
    std::uint64_t bits = 0;
    for (int signal = 1; mask != nullptr && signal <= 64; ++signal)
        if (::sigismember(mask, signal) == 1) bits |= std::uint64_t{1} << (signal - 1);
    return bits;
}

}  // namespace

/// What a child works with, by itself, and its stack. Nothing in it may be moved.
struct SharedStart {
    explicit SharedStart(const ProcessPlan& plan)
        : files(files_of(plan.path)),
          argv(plan.argv.begin(), plan.argv.end()),
          env(plan.env.begin(), plan.env.end()),
          directory(plan.directory != nullptr ? plan.directory : ""),
          cpus(cpu_mask(plan.cpus)),
          file_pointers(pointers(files)),
          argv_pointers(pointers(argv)),
          env_pointers(pointers(env)),
          script_pointers{shell.data(), nullptr} {
        // A program may be started without a word, not even its own name.
        for (std::size_t i = 1; i < argv.size(); ++i) script_pointers.push_back(argv[i].data());
        script_pointers.push_back(nullptr);
        for (const ProcessPlan::Given& one : plan.descriptors) {
            given.push_back({one.ours, one.number});
            start.first_free = std::max(start.first_free, one.number + 1);
        }
        start.first_free = std::max(start.first_free, STDERR_FILENO + 1);
        ::getrlimit(RLIMIT_NOFILE, &descriptor_limit);
        constexpr rlim_t kMost = 1u << 20;
        start.descriptors_max = static_cast<int>(std::min(descriptor_limit.rlim_cur, kMost));
        descriptor_limit.rlim_cur = plan.descriptor_limit;
        start.parent = ::getpid();
        start.given = given.data();
        start.given_count = given.size();
        start.group = static_cast<ChildStart::Group>(plan.group);
        start.controlling_terminal = plan.controlling_terminal;
        start.keep_ignored_signals = plan.keep_ignored_signals;
        start.blocked_signals = kernel_mask(plan.blocked_signals);
        start.death_signal = plan.death_signal;
        start.may_be_traced = plan.may_be_traced;
        if (plan.descriptor_limit != 0) start.descriptor_limit = &descriptor_limit;
        if (!cpus.empty()) start.cpus = cpus.data();
        start.cpus_bytes = cpus.size() * sizeof cpus[0];
        if (plan.directory != nullptr) start.directory = directory.c_str();
        start.files = file_pointers.data();
        start.argv = argv_pointers.data();
        start.env = env_pointers.data();
        start.script_argv = script_pointers.data();
        start.execute = plan.execute;
        start.execute_context = plan.execute_context;
        if (plan.close_others) start.descriptors = ChildStart::Descriptors::closed;
    }
    SharedStart(const SharedStart&) = delete;
    SharedStart& operator=(const SharedStart&) = delete;

    /// Of what the child is to get gives high numbers low ones, too, for as long as `low` is there.
    void copy_to_low_numbers(std::vector<Fd>& low) {
        for (ChildStart::Given& one : given) {
            if (one.ours < kHighDescriptor) continue;
            const int copy = ::fcntl(one.ours, F_DUPFD_CLOEXEC, 0);
            if (copy < 0) continue;
            low.emplace_back(copy);
            one.ours = copy;
        }
    }

    std::byte* stack_end() { return stack.data() + stack.size(); }

    std::string shell = "/bin/sh";
    std::vector<std::string> files, argv, env;
    std::string directory;
    std::vector<unsigned long> cpus;
    std::vector<ChildStart::Given> given;
    rlimit descriptor_limit{};
    std::vector<char*> file_pointers, argv_pointers, env_pointers, script_pointers;
    bool shares_memory = false;  ///< else the child has a copy of this
    ChildStart start;
    alignas(
        64) std::array<std::byte, 16u << 10> stack;  ///< not initialized: most of it is never used
};

namespace {

/// Blocks all signals while alive: our handlers must not run in the child before it has reset them.
class AllSignalsBlocked {
public:
    AllSignalsBlocked() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    AllSignalsBlocked(const AllSignalsBlocked&) = delete;
    AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

private:
    sigset_t before_;
};

/// The child shares our memory where that can be, and has a copy of it elsewhere, as it has where it is to run a
/// function of ours. Errc: internal
Result<pid_t> start_child(SharedStart& shared) {
    ChildStart& start = shared.start;
    const AllSignalsBlocked blocked;
    pid_t pid = -1;
    if (start.execute == nullptr) {
        const auto descriptors = start.descriptors;
        if (descriptors == ChildStart::Descriptors::closed && can_unshare_low_descriptors())
            start.descriptors = ChildStart::Descriptors::unshared_low;
        pid = start_sharing_memory(start, shared.stack_end());
        shared.shares_memory = pid >= 0;
        if (pid >= 0) return pid;
        start.descriptors = descriptors;
        if (errno != EINVAL) return fail(Errc::internal, "fork: {}", std::strerror(errno));
    }
    pid = ::fork();
    if (pid == 0) start_program(start);
    if (pid < 0) return fail(Errc::internal, "fork: {}", std::strerror(errno));
    return pid;
}

}  // namespace

Errc ExecFailure::code() const {
    const bool is_denied = cause == EACCES || cause == ENOEXEC;
    return cause == ENOENT ? Errc::not_found : is_denied ? Errc::denied : Errc::internal;
}

std::string ExecFailure::message() const {
    constexpr std::array<const char*, 4> stages{"redirect", "change directory", "execute",
                                                "bind to processors"};
    return fmt::format("cannot {}: {}", stages.at(static_cast<std::size_t>(stage)),
                       std::strerror(cause));
}

ExecStatus::ExecStatus() = default;
ExecStatus::ExecStatus(Fd pipe, std::unique_ptr<SharedStart> shared)
    : pipe_(std::move(pipe)), shared_(std::move(shared)) {}
ExecStatus::ExecStatus(ExecStatus&&) noexcept = default;

ExecStatus& ExecStatus::operator=(ExecStatus&& other) noexcept {
    std::swap(pipe_, other.pipe_);
    std::swap(shared_, other.shared_);
    std::swap(failure_, other.failure_);
    std::swap(has_own_descriptors_, other.has_own_descriptors_);
    return *this;
}

ExecStatus::~ExecStatus() {
    if (shared_ && !result()) (void)shared_.release();
}

std::optional<std::expected<void, ExecFailure>> ExecStatus::result() {
    for (;;) {
        ChildReport said{};
        const ssize_t n = ::read(pipe_.get(), &said, sizeof said);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return std::nullopt;
        if (n < static_cast<ssize_t>(sizeof said)) break;
        has_own_descriptors_ = true;
        // A child that has failed has to end yet: only then nobody has the other end of the pipe.
        if (said.stage != ChildReport::kHasOwnDescriptors)
            failure_ = ExecFailure{static_cast<ExecFailure::Stage>(said.stage), said.cause};
    }
    shared_.reset();
    if (failure_) return std::unexpected(*failure_);
    return std::expected<void, ExecFailure>{};
}

/// The child is on its way, and says so after a few system calls; unless somebody kills it before.
void ExecStatus::wait_for_own_descriptors(pid_t child) {
    constexpr int kLookMs = 100;
    while (!has_own_descriptors_) {
        pollfd said{pipe_.get(), POLLIN, 0};
        const int ready = ::poll(&said, 1, kLookMs);
        result();
        siginfo_t ended{};
        if (ready != 0) continue;
        // It has ended, or somebody else has waited for it.
        if (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            ended.si_pid == child)
            return;
    }
}

Result<SpawnedProcess> spawn_without_waiting(const ProcessPlan& plan) {
    auto status = make_pipe();
    if (!status) return std::unexpected(status.error());
    if (::fcntl(status->read.get(), F_SETFL, O_NONBLOCK) != 0)
        return fail(Errc::internal, "fcntl: {}", std::strerror(errno));
    auto shared = std::make_unique<SharedStart>(plan);
    shared->start.status = status->write.get();
    std::vector<Fd> low;
    if (plan.close_others) shared->copy_to_low_numbers(low);
    const auto pid = start_child(*shared);
    if (!pid) return std::unexpected(pid.error());
    // Parent and child both do this: whichever is first, the group exists when we go on.
    if (plan.group == ProcessPlan::Group::own_group) ::setpgid(*pid, *pid);
    const bool shares_table = shared->start.descriptors == ChildStart::Descriptors::unshared_low;
    if (!shared->shares_memory) shared.reset();
    SpawnedProcess spawned{*pid, ExecStatus(std::move(status->read), std::move(shared))};
    // Until then the child has those that are closed here.
    if (shares_table) spawned.executed.wait_for_own_descriptors(*pid);
    return spawned;
}

Result<pid_t> spawn_process(const ProcessPlan& plan) {
    auto spawned = spawn_without_waiting(plan);
    if (!spawned) return fail(spawned.error(), "{}", plan.path);
    auto executed = spawned->executed.result();
    while (!executed) {
        pollfd known{spawned->executed.get(), POLLIN, 0};
        ::poll(&known, 1, -1);
        executed = spawned->executed.result();
    }
    if (executed->has_value()) return spawned->pid;
    while (::waitpid(spawned->pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return fail(executed->error().code(), "{}: {}", plan.path, executed->error().message());
}

int exit_code_of(int wait_status) {
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

std::string describe_exit(int wait_status) {
    if (!WIFSIGNALED(wait_status))
        return fmt::format("ended with exit code {}", exit_code_of(wait_status));
    return "was ended by " + signal_text(WTERMSIG(wait_status));
}

std::vector<unsigned long> cpu_mask(std::span<const unsigned> cpus) {
    constexpr unsigned kBits = std::numeric_limits<unsigned long>::digits;
    std::vector<unsigned long> mask;
    for (const unsigned cpu : cpus) {
        if (cpu / kBits >= mask.size()) mask.resize(cpu / kBits + 1);
        mask[cpu / kBits] |= 1ul << cpu % kBits;
    }
    return mask;
}

std::vector<char*> pointers(std::span<const std::string> strings) {
    std::vector<char*> list;
    list.reserve(strings.size() + 1);
    for (const std::string& string : strings) list.push_back(const_cast<char*>(string.c_str()));
    list.push_back(nullptr);
    return list;
}

}  // namespace dtrun
