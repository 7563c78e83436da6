#include "worker/agent/onward_ssh.h"

#include "base/environment.h"
#include "worker/ranks/rank_process.h"
#include "worker/ranks/supervisor.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace dtrun::agent {
namespace {

/// With each '%' doubled, which ssh would replace.
std::string percents_of(std::string_view text) {
    std::string result;
    for (const char c : text) result.append(c == '%' ? 2 : 1, c);
    return result;
}

}  // namespace

std::vector<std::string> ssh_arguments(const LoginOrder& order, const std::string& known_hosts) {
    std::vector<std::string> argv{"ssh", "-a", "-x", "-T"};
    const auto set = [&argv](std::string option) {
        argv.emplace_back("-o");
        argv.push_back(std::move(option));
    };
    // Before all that an older ssh may not know, as KnownHostsCommand: what it does not know it does not do.
    set("IgnoreUnknown=*");
    for (const char* const option :
         {"BatchMode=yes", "ClearAllForwardings=yes", "ControlMaster=no", "ControlPath=none",
          "RemoteCommand=none", "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=/dev/null",
          "KnownHostsCommand=none", "CheckHostIP=no", "VerifyHostKeyDNS=no", "UpdateHostKeys=no",
          "NoHostAuthenticationForLocalhost=no", "ServerAliveInterval=30"})
        set(option);
    set("UserKnownHostsFile=" + known_hosts);
    set("HostKeyAlias=" + order.known_as);
    set("HostName=" + percents_of(order.host));
    set(fmt::format("ConnectTimeout={}", order.limit_s));
    for (const std::string& option : order.options) set(option);
    argv.insert(argv.end(), {"-p", std::to_string(order.port), "-l", order.user, "--", order.name,
                             order.command});
    return argv;
}

std::string known_hosts_lines(const LoginOrder& order) {
    std::string lines;
    for (const std::string& key : order.keys) lines += fmt::format("{} {}\n", order.known_as, key);
    return lines;
}

StartLogin start_ssh_with(std::shared_ptr<ranks::Supervisor*> supervisor) {
    // Of all hosts: each has a name of its own there. In memory, so that nothing is left behind.
    const auto known = std::make_shared<Fd>();
    return [supervisor, known](
               const LoginOrder& order,
               const std::function<void(std::string)>& ended) -> Result<LoginProgram> {
        const char* const path = std::getenv("PATH");
        auto program = ranks::find_program("ssh", "/", path == nullptr ? "" : path);
        if (!program) return std::unexpected(program.error());
        if (!*known) known->reset(::memfd_create("known_hosts", MFD_CLOEXEC));
        if (!*known) return fail(Errc::internal, "memfd_create: {}", strerror(errno));
        if (auto done = write_all(known->get(), known_hosts_lines(order)); !done)
            return std::unexpected(done.error());
        // It is ssh that opens it, which closes what it has inherited.
        const std::string file = fmt::format("/proc/{}/fd/{}", ::getpid(), known->get());
        ranks::RankCommand command{.path = std::move(*program),
                                   .argv = ssh_arguments(order, file),
                                   .env = own_environment(),
                                   .directory = "/"};
        command.wants_input = true;
        command.own_session = true;
        const auto executed = std::make_shared<ExecStatus>();  // until then it works in our memory
        const auto exited = [ended, executed, known](int status) {
            ended(WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status))
                                    : fmt::format("signal {}", WTERMSIG(status)));
        };
        auto started =
            (*supervisor)->start_helper(command, exited, ranks::Supervisor::Lasts::longer);
        if (!started) return std::unexpected(started.error());
        *executed = std::move(started->executed);
        const pid_t pid = started->pid;
        return LoginProgram{std::move(started->in), std::move(started->out),
                            std::move(started->err),
                            [supervisor, pid] { (*supervisor)->kill_helper(pid); }};
    };
}

}  // namespace dtrun::agent
