#include "worker/agent/onward_ssh.h"

#include "base/environment.h"
#include "worker/ranks/process_tree.h"
#include "worker/ranks/rank_process.h"
#include "worker/ranks/supervisor.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
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

constexpr const char* kAgentVariable = "SSH_AUTH_SOCK";

/// Whether the ssh-agent there is one that sshd forwards: it listens itself, and has started us.
bool is_forwarded(std::string_view path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return false;
    path.copy(address.sun_path, path.size());
    const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ucred listener{};
    socklen_t size = sizeof listener;
    return socket &&
           ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
           ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &listener, &size) == 0 &&
           ranks::is_ancestor(listener.pid);
}

}  // namespace

std::string take_lent_agent() {
    const char* const path = std::getenv(kAgentVariable);
    if (path == nullptr || !is_forwarded(path)) return {};
    std::string lent = path;
    ::unsetenv(kAgentVariable);
    return lent;
}

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

StartLogin start_ssh_with(std::shared_ptr<ranks::Supervisor*> supervisor, std::string lent_agent) {
    // Of all hosts: each has a name of its own there. In memory, so that nothing is left behind.
    const auto known = std::make_shared<Fd>();
    return [supervisor, known, lent_agent = std::move(lent_agent)](
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
        if (!lent_agent.empty())
            command.env.push_back(fmt::format("{}={}", kAgentVariable, lent_agent));
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
