#pragma once

#include "tests/cluster/support/processes.h"
#include "tests/cluster/support/running.h"

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::cluster {

/// Ends this test program as skipped, or fails its test in CI (tests/support/skip.h).
[[noreturn]] void skip(const std::string& why);

/// Hosts with real sshd, made by the script beside this folder: "head" and "s1" to "sN".
///
/// Thread: any one. Errors are std::runtime_error: they fail the test. Where a cluster cannot be
/// made (not root, a program is missing), the first one prints "SKIPPED: why" and ends the test
/// program with the status that CTest knows as skipped; in CI it fails.
/// The dtrun under test is that of the build in DTRUN_UNDER_TEST, or of the tests' own build.
class Cluster {
public:
    /// The test program's only cluster, reset, with at least `hosts` hosts (names may hold more).
    /// The first call brings it up; it is taken down at exit, also after SIGKILL.
    static Cluster& shared(int hosts);

    explicit Cluster(int hosts);
    ~Cluster();
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    std::vector<std::string> names;                                     ///< s1 to sN
    std::string host_list(int slots = 1, std::size_t hosts = 0) const;  ///< "s1:2,s2:2"; 0: all
    const std::filesystem::path& state() const { return state_; }

    /// A directory that all hosts and this program see at the same path, writable for all users.
    std::filesystem::path scratch() const { return state_ / "scratch"; }

    /// Runs a command to its end, as if at the host's console. Its standard input is
    /// options.stdin_text, then end of file.
    Finished run(std::string_view host, std::vector<std::string> argv,
                 const RunOptions& options = {});
    /// Starts a command; its standard input stays open.
    Running start(std::string_view host, std::vector<std::string> argv,
                  const RunOptions& options = {});
    static std::string program();  ///< path of the dtrun under test, in a build's bin/
    /// Whether that dtrun was built with ASan or TSan, which need memory and time: limits must be
    /// wider.
    static bool sanitized();
    /// Runs, or starts, dtrun on head.
    Finished dtrun(std::vector<std::string> arguments, const RunOptions& options = {});
    Running start_dtrun(std::vector<std::string> arguments, const RunOptions& options = {});

    /// The host's processes except its init, listening sshd, Slurm's daemons (see Slurm) and
    /// zombies. None on a crashed host.
    std::vector<Process> processes(std::string_view host) const;
    void kill(pid_t pid_outside, int signal);
    using Predicate = std::function<bool(const Process&)>;
    /// Waits until no process of the host fits. No predicate: every process fits. \return false:
    /// timeout
    bool wait_gone(std::string_view host, const Predicate& fits = {},
                   milliseconds timeout = milliseconds(10'000)) const;
    /// wait_gone() for head and all other hosts together.
    bool wait_all_gone(const Predicate& fits = {},
                       milliseconds timeout = milliseconds(10'000)) const;
    /// All hosts' processes, "s1 1234 sleep 60\n...", for messages of failed checks.
    std::string leftovers() const;

    enum class Cut { carrier, silent };  ///< the host sees its link go down, or notices nothing
    void kill_link(std::string_view host, Cut cut = Cut::carrier);
    void heal_link(std::string_view host);
    void sshd_stop(std::string_view host);  ///< existing sessions go on
    void sshd_start(std::string_view host);
    void crash(std::string_view host);  ///< cuts its network, then kills all its processes
    void boot(std::string_view host);   ///< a crashed host: new home and /tmp, the same host key
    void freeze(std::string_view host);
    void thaw(std::string_view host);
    void bind(std::string_view host, const std::filesystem::path& source,
              const std::filesystem::path& target);
    void unbind(std::string_view host, const std::filesystem::path& target);
    /// Limits /root and /home. \param size  e.g. "1m"; empty: none
    void limit_home(std::string_view host, std::string_view size, bool noexec = false);

    /// Kills what runs on the hosts and undoes all of the above, so that a failed test does not
    /// spoil the next. Files in homes, /tmp and scratch() stay.
    void reset();
    std::string sshd_log(std::string_view host) const;

private:
    Place place(std::string_view host) const;
    Command command(const Place& place, std::vector<std::string> argv,
                    const RunOptions& options) const;
    std::string script(std::vector<std::string> words) const;

    std::filesystem::path state_;
};

}  // namespace dtrun::cluster
