// The scripts that find or store the agent on a host, run by /bin/sh on this one.
#include "base/crypto.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/strings.h"
#include "launcher/head/slurm_step.h"
#include "launcher/transport/agent_starter.h"
#include "launcher/transport/carrier.h"
#include "launcher/transport/gzip.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "worker/stored/stored_file.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace dtrun {

using namespace head;
using namespace transport;
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr const char* kBuild = "0123abcd";
constexpr const char* kJob = "77";
/// Stands for the agent: says which it is, and where it was executed.
constexpr const char* kAgent =
    "#!/bin/sh\n"
    "case $1 in --build-id) echo 0123abcd;; --vouch | --prepare) ;; *) echo \"runs $0 $*\"; "
    "[ \"$1\" != --hand-on ] || cat <&8 >\"$HOME/handed\"; umask >\"$HOME/umask\"; "
    "esac\n";
constexpr const char* kPackage = "the archive of a package";
constexpr uid_t kNobody = 65'534;

void write_file(const fs::path& file, const std::string& text, mode_t mode = 0644) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
    REQUIRE(::chmod(file.c_str(), mode) == 0);
}

/// What the head sends.
struct Sent {
    std::string bytes;
    std::size_t of_agent;
    const char* packing = "plain";

    std::string announcement() const {
        return fmt::format("{} {} {} {} {}", kBuild, bytes.size(), hex(sha256(bytes)), of_agent,
                           packing);
    }
};

/// A host: a home and what lies there.
class HostHere {
public:
    HostHere() {
        std::string name = "/tmp/dtrun-test-XXXXXX";
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        home = name;
    }
    ~HostHere() { fs::remove_all(home); }
    HostHere(const HostHere&) = delete;
    HostHere& operator=(const HostHere&) = delete;

    fs::path cache() const { return home / ".cache/dtrun"; }
    fs::path agent() const { return cache() / fmt::format("agent-{}", kBuild); }
    fs::path package() const { return cache() / fmt::format("package-{}.tar.gz", kBuild); }

    /// What a command says when it is answered with the agent, whole or not.
    std::string run(const std::string& command, std::string_view sent = kAgent) const {
        return run(command, {.bytes = kAgent, .of_agent = std::string_view(kAgent).size()}, sent);
    }
    /// The same for any bytes.
    std::string run(const std::string& command, const Sent& expected, std::string_view sent) const {
        return answer(command, fmt::format("{}\n{}", expected.announcement(), sent));
    }
    /// What a command of a step says that is answered so.
    std::string run_step(const std::string& answered) const {
        return answer(node_agent_command({"/nowhere", kBuild}, kJob), answered);
    }
    std::string answer(const std::string& command, const std::string& answered) const {
        write_file(home / "in", answered);
        write_file(home / "command", command);
        // What goes on in the background keeps 7 open.
        const std::string line = fmt::format(
            "{{ cd / && umask 027 && HOME={0} XDG_CACHE_HOME={1} PATH={0}/bin:$PATH "
            "SLURMD_NODENAME=n1 {2} "
            "{3} {0}/command <{0}/in >{0}/out 2>{0}/err; }} 7>&1 | cat",
            home.native(), xdg, says, shell);
        static_cast<void>(std::system(line.c_str()));
        if (says.empty()) CHECK(read_file(home / "err").value() == "");
        return read_file(home / "out").value();
    }
    std::string start(std::string_view sent = kAgent) const {
        return run(remote_agent_command({"/nowhere", kBuild}, kJob), sent);
    }

    /// As an agent vouches for its file.
    void vouch() const {
        const timespec times[] = {{0, UTIME_OMIT}, {agent::kVouchedTime, 0}};
        REQUIRE(::utimensat(AT_FDCWD, agent().c_str(), times, 0) == 0);
    }

    fs::path home;
    std::string xdg;
    std::string says;  ///< a variable of the log-in that has programs print errors
    std::string shell = "/bin/sh";
};

/// A host that hands on: a process that answers one connection.
class Giver {
public:
    explicit Giver(const std::string& bytes) {
        const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        REQUIRE(::bind(listener.get(), any, size) == 0);
        REQUIRE(::listen(listener.get(), 1) == 0);
        REQUIRE(::getsockname(listener.get(), any, &size) == 0);
        port = ntohs(address.sin_port);
        pid_ = ::fork();
        if (pid_ != 0) return;
        const Fd taker(::accept(listener.get(), nullptr, nullptr));
        char word[8];
        const bool knows =
            ::read(taker.get(), word, sizeof word) == 5 && std::string_view(word, 5) == "word\n";
        if (knows) static_cast<void>(write_all(taker.get(), bytes));
        ::_exit(0);
    }
    ~Giver() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    Giver(const Giver&) = delete;
    Giver& operator=(const Giver&) = delete;

    int port = 0;

private:
    pid_t pid_ = -1;
};

std::string machine() {
    utsname own{};
    ::uname(&own);
    return own.machine;
}

/// The answer to a step in which nodes of another CPU lack an agent, too.
std::string step_answer(const Sent& ours) {
    const std::string other = "the agent of another CPU";
    return fmt::format("{} sparc64 77 {} {} {} plain {} {}\n{}{}go\n",
                       other.size() + ours.bytes.size(), other.size(), hex(sha256(other)),
                       other.size(), machine(), ours.announcement(), other, ours.bytes);
}

}  // namespace

TEST_CASE("an agent that a host lacks is stored there and found again", "[agent]") {
    const HostHere host;
    const std::string runs = fmt::format("runs {} \n", host.agent().native());
    const std::string said = host.start();
    CHECK_THAT(said, Catch::StartsWith("dtrun-agent-wanted " + machine() + " gzip,tcp,python ") &&
                         Catch::EndsWith("\ndtrun-agent-send\ndtrun-agent-stored\n" + runs));
    CHECK(read_file(host.home / "umask").value() == "0027\n");  // of the log-in, for ranks
    CHECK(host.start() == runs);
    CHECK(read_file(host.home / "umask").value() == "0027\n");
    CHECK((fs::status(host.cache()).permissions() & fs::perms::mask) == fs::perms::owner_all);
}

TEST_CASE("the package that comes behind an agent is stored beside it", "[agent]") {
    const HostHere host;
    const std::string agent = kAgent;
    const Sent plain{agent + kPackage, agent.size()};
    const Sent packed{gzip(agent) + kPackage, gzip(agent).size(), "gzip"};
    const std::string start = remote_agent_command({"/nowhere", kBuild}, kJob);
    const auto is_stored = [&host, &agent](const std::string& said) {
        INFO(said);
        CHECK_THAT(said, Contains("wanted") && Contains("runs"));
        CHECK(read_file(host.agent()).value() == agent);
        CHECK(read_file(host.package()).value() == kPackage);
        const auto left =
            std::distance(fs::directory_iterator(host.cache()), fs::directory_iterator());
        CHECK(left == 3);  // with the agent's sum
    };
    for (const Sent& sent : {plain, packed}) {
        is_stored(host.run(start, sent, sent.bytes));
        CHECK_THAT(host.run(start, sent, sent.bytes), !Contains("wanted"));
        fs::remove_all(host.cache());
        is_stored(host.run_step(step_answer(sent)));
        CHECK_THAT(host.run_step(step_answer(sent)), Contains("found") && Contains("runs"));
        fs::remove_all(host.cache());
    }
}

TEST_CASE("a packed agent that cannot be unpacked is not stored", "[agent]") {
    const HostHere host;
    const Sent sent{"no gzip", 7, "gzip"};
    CHECK_THAT(host.run(remote_agent_command({"/nowhere", kBuild}, kJob), sent, sent.bytes),
               Contains("dtrun-agent-failed cannot store the agent: ") && Contains("gzip"));
    CHECK(fs::is_empty(host.cache()));
}

TEST_CASE("a host without gzip asks for the agent as it is", "[agent]") {
    const HostHere host;
    const std::string only = fmt::format(
        "mkdir {0}/some && for p in uname sh id find mkdir rm chmod head wc tail mv cksum "
        "sha256sum; do ln -s $(command -v $p) {0}/some/$p; done",
        host.home.native());
    REQUIRE(std::system(only.c_str()) == 0);
    const std::string start = fmt::format("PATH={}/some; {}", host.home.native(),
                                          remote_agent_command({"/nowhere", kBuild}, kJob));
    CHECK(host.run(start) ==
          fmt::format(
              "dtrun-agent-wanted {} plain \ndtrun-agent-send\ndtrun-agent-stored\nruns {} \n",
              machine(), host.agent().native()));
}

TEST_CASE("a home where nothing can be stored is told with the variables that name it", "[agent]") {
    HostHere host;
    write_file(host.home / "file", "");
    host.xdg = host.home / "file";
    CHECK_THAT(host.start(),
               Contains("dtrun-agent-failed cannot store the agent: mkdir: ") &&
                   Contains(fmt::format("(HOME={} and XDG_CACHE_HOME={} there say where; ",
                                        host.home.native(), host.xdg)));
}

TEST_CASE("an agent that vouches for itself is executed without any other process", "[agent]") {
    const HostHere host;
    REQUIRE_THAT(host.start(), Contains("wanted"));
    host.vouch();
    const std::string runs = fmt::format("runs /proc/self/fd/9 --as {}", host.agent().native());
    const auto without_programs = [](const std::string& command) {
        return "PATH=/nowhere; " + command;
    };
    const transport::AgentFile agent{"/nowhere", kBuild};
    CHECK(host.run(without_programs(remote_agent_command(agent, kJob))) == runs + "\n");
    CHECK(host.run(without_programs(remote_agent_command(agent, kJob, "--checkup"))) ==
          runs + " --checkup\n");
    CHECK(host.run_step("go\n") == fmt::format("@n1 dtrun-agent-found\n{} --node n1\n", runs));
    CHECK(host.run(remote_sweep_command({"98", kBuild}, "77", 3)) == runs + " --sweep 77 3\n");
}

TEST_CASE("an agent to which somebody has written vouches no more", "[agent]") {
    const HostHere host;
    const std::string agent = kAgent;
    REQUIRE_THAT(host.start(), Contains("wanted"));
    host.vouch();
    std::ofstream(host.agent(), std::ios::app) << "echo more\n";
    CHECK_THAT(host.start(), Contains("wanted") && !Contains("more"));
    CHECK(read_file(host.agent()).value() == agent);
}

TEST_CASE("nobody vouches for the agent of another user", "[agent]") {
    if (::geteuid() != 0) {
        skip_case("only root can make files of another user");
        return;
    }
    const HostHere host;
    REQUIRE_THAT(host.start(), Contains("wanted"));
    host.vouch();
    REQUIRE(::chown(host.agent().c_str(), kNobody, kNobody) == 0);
    CHECK_THAT(host.start(), Contains("wanted"));
    host.vouch();
    CHECK_THAT(host.start(), !Contains("wanted") && Contains("--as"));
    REQUIRE(::chmod(host.agent().c_str(), 0600) == 0);
    CHECK_THAT(host.start(), Contains("wanted"));
}

TEST_CASE("an agent that a crash or a full disk has left damaged is replaced", "[agent]") {
    const HostHere host;
    const std::string agent = kAgent;
    REQUIRE_THAT(host.start(), Contains("wanted"));
    std::string other = agent;
    other.back() = ' ';
    for (const std::string& damaged : {std::string(), agent.substr(0, 20), other}) {
        write_file(host.agent(), damaged, 0700);
        CHECK_THAT(host.start(), Contains("wanted") && Contains("runs"));
        CHECK(read_file(host.agent()).value() == agent);
    }
    fs::remove(host.cache() / fmt::format(".sum-{}", kBuild));
    CHECK_THAT(host.start(), Contains("wanted") && Contains("runs"));
    CHECK_THAT(host.start(), !Contains("wanted"));
}

TEST_CASE("an agent that does not arrive whole is not stored", "[agent]") {
    const HostHere host;
    const std::string agent = kAgent;
    CHECK_THAT(host.start(agent.substr(9)), Contains("dtrun-agent-failed") && Contains("bytes in"));
    CHECK(fs::is_empty(host.cache()));
    std::string other = agent;
    other.back() = ' ';
    Sent sent{agent, agent.size()};
    std::string answered = step_answer(sent);
    answered.replace(answered.rfind(agent), agent.size(), other);
    CHECK_THAT(host.run_step(answered),
               Contains("dtrun-agent-failed the agent was damaged on its way"));
    CHECK(fs::is_empty(host.cache()));
}

TEST_CASE("who stores the agent, or waits for it, starts few programs", "[agent]") {
    const HostHere host;
    const auto started = [&host](const std::string& answered) {
        fs::remove(host.home / "started");
        static_cast<void>(host.answer(remote_agent_command({"/nowhere", kBuild}, kJob), answered));
        return read_file(host.home / "started").value();
    };
    for (const char* const program : {"uname", "id", "find", "mkdir", "rm", "chmod", "head", "wc",
                                      "tail", "mv", "cksum", "sha256sum", "ln", "readlink", "gzip"})
        write_file(host.home / "bin" / program,
                   fmt::format("#!/bin/sh\necho {0} >>{1}/started\nexec /usr/bin/{0} \"$@\"\n",
                               program, host.home.native()),
                   0755);
    const std::string agent = kAgent;
    const Sent sent{agent + kPackage, agent.size()};
    const std::string copied = fmt::format("{}\n{}", sent.announcement(), sent.bytes);
    CHECK(started(copied) ==
          "uname\nmkdir\nln\nreadlink\nchmod\nhead\nwc\ntail\nmv\nhead\nchmod\n"
          "cksum\nmv\nrm\nid\nfind\n"
          "find\n");  // in the background
    // Another host of the home stores it.
    fs::remove(host.agent());
    fs::create_symlink("n1.1", host.cache() / ".first-77");
    CHECK(started(fmt::format("{}\n", kBuild)) == "uname\nreadlink\n");
}

TEST_CASE("an agent that was stored vouches for itself while the job goes on", "[agent]") {
    const HostHere host;
    const std::string agent = fmt::format(
        "#!/bin/sh\ncase $1 in --vouch) until [ -e \"$HOME/ran\" ]; do sleep 0.01; done; "
        "touch -d @{} \"$0\";; --prepare) ;; *) : >\"$HOME/ran\"; echo \"runs $*\";; esac\n",
        agent::kVouchedTime);
    const Sent sent{agent, agent.size()};
    const std::string start = remote_agent_command({"/nowhere", kBuild}, kJob);
    CHECK_THAT(host.run(start, sent, agent), Catch::EndsWith("\ndtrun-agent-stored\nruns \n"));
    CHECK(host.run(start, sent, agent) == "runs --as " + host.agent().native() + "\n");
    // Where the time cannot be kept its sum is as good.
    CHECK_FALSE(fs::is_empty(host.cache() / fmt::format(".sum-{}", kBuild)));
}

TEST_CASE("variables of the user that are called like those of the scripts mean nothing",
          "[agent]") {
    HostHere host;
    write_file(host.home / "precious", "");
    host.says = fmt::format(
        "dtrun_new={0}/precious dtrun_word=hello dtrun_code=false dtrun_port=1 dtrun_lacks={1}",
        host.home.native(), kBuild);
    write_file(host.home / "bin/find", "#!/bin/sh\necho no such thing >&2; exit 1\n", 0755);
    const std::string said = host.start();
    CHECK_THAT(said, Contains("dtrun-agent-failed"));
    const std::string agent = kAgent;
    CHECK_THAT(host.run_step(step_answer({agent, agent.size()})), Contains("dtrun-agent-failed"));
    CHECK(fs::exists(host.home / "precious"));
}

TEST_CASE("what the user exports reaches the agent as it was, whatever it is called", "[agent]") {
    HostHere host;
    const std::string agent =
        "#!/bin/sh\ncase $1 in --prepare | --vouch) exit;; esac; tr '\\0' '\\n' </proc/$$/environ "
        ">\"$HOME/exported\"\n";
    const Sent sent{gzip(agent) + kPackage, gzip(agent).size(), "gzip"};
    std::vector<std::string> exported{"BASH_FUNC_run%%=() {  echo mine\n}"};
    for (char c = 'a'; c <= 'z'; ++c) exported.push_back(fmt::format("{}=mine", c));
    for (const char* const name : {"id", "at", "word", "limit", "port", "from", "code", "node",
                                   "packing", "lacks", "new", "agent", "bytes"})
        exported.push_back(fmt::format("{}=mine", name));
    host.says = "env";
    for (const std::string& word : exported) host.says += " " + shell_quote(word);
    // Any bash is as good as one that is called sh: that one has its users' functions, too.
    host.shell = "/bin/bash";
    const auto by_bash = [](std::string command) {
        const std::size_t at = command.find("/bin/sh");
        return at == std::string::npos ? command : command.replace(at, 7, "/bin/bash");
    };
    const AgentFile file{"/nowhere", kBuild};
    const auto is_as_it_was = [&](const std::string& command, const std::string& answered) {
        const std::string said = host.answer(by_bash(command), answered);
        INFO(said);
        const std::string got = read_file(host.home / "exported").value();
        for (const std::string& word : exported) CHECK_THAT(got, Contains("\n" + word + "\n"));
        fs::remove(host.home / "exported");
    };
    const std::string start = remote_agent_command(file, kJob);
    is_as_it_was(start, fmt::format("{}\n{}", sent.announcement(), sent.bytes));
    is_as_it_was(start, "");  // it is there now
    is_as_it_was(node_agent_command(file, kJob), "go\n");
    fs::remove_all(host.cache());
    is_as_it_was(node_agent_command(file, kJob), step_answer(sent));
}

TEST_CASE("an agent that others could have changed is not executed", "[agent]") {
    const HostHere host;
    REQUIRE_THAT(host.start(), Contains("wanted"));
    for (const auto& [place, mode] : {std::pair(host.agent(), 0720),
                                      {host.agent(), 0702},
                                      {host.cache(), 0770},
                                      {host.cache(), 0707},
                                      {host.cache().parent_path(), 0757}}) {
        INFO(place.native());
        const fs::perms before = fs::status(place).permissions();
        REQUIRE(::chmod(place.c_str(), static_cast<mode_t>(mode)) == 0);
        CHECK_THAT(host.start(), Contains("wanted"));
        fs::permissions(place, before);
        CHECK_THAT(host.start(), !Contains("wanted"));
    }
    // The modes of a directory with a group of the user's own, and of /tmp.
    for (const mode_t mode : {0775, 01777}) {
        REQUIRE(::chmod(host.cache().parent_path().c_str(), mode) == 0);
        CHECK_THAT(host.start(), !Contains("wanted"));
    }
}

TEST_CASE("what ld.so says of a library that is missing is no finding", "[agent]") {
    HostHere host;
    host.says = "LD_PRELOAD=/none/at-all.so";
    CHECK_THAT(host.start(), Contains("wanted") && Contains("runs"));
    CHECK_THAT(host.start(), !Contains("wanted") && Contains("runs"));
    REQUIRE(::chmod(host.cache().c_str(), 0707) == 0);
    CHECK_THAT(host.start(), Contains("wanted"));
}

TEST_CASE("a host that cannot tell who could change the agent says why", "[agent]") {
    const HostHere host;
    write_file(host.home / "bin/find", "#!/bin/sh\necho no such thing >&2; exit 1\n", 0755);
    CHECK_THAT(host.start(), Contains("dtrun-agent-failed cannot tell who could change") &&
                                 Contains("no such thing") && !Contains("others"));
}

TEST_CASE("a host without cksum finds the agent again, too", "[agent]") {
    const HostHere host;
    const auto lacks = [&host](const char* program) {
        write_file(host.home / "bin" / program, "#!/bin/sh\nexit 127\n", 0755);
    };
    for (const char* const program : {"cksum", "sha256sum", "md5sum"}) {
        INFO(program);
        lacks(program);
        fs::remove_all(host.cache());
        CHECK_THAT(host.start(), Contains("wanted") && Contains("runs"));
        CHECK_THAT(host.start(), !Contains("wanted"));
        write_file(host.agent(), "cut", 0700);
        CHECK_THAT(host.start(), Contains("wanted"));
    }
}

TEST_CASE("nothing is stored in a directory that somebody else has made", "[agent]") {
    if (::geteuid() != 0) {
        skip_case("only root can make files of another user");
        return;
    }
    HostHere host;
    host.xdg = host.home / "shared";
    const fs::path theirs = host.home / "shared/dtrun" / fmt::format("agent-{}", kBuild);
    write_file(theirs, "#!/bin/sh\necho stolen\n", 0755);
    for (const fs::path& place : {theirs, theirs.parent_path()})
        REQUIRE(::chown(place.c_str(), kNobody, kNobody) == 0);
    CHECK_THAT(host.start(), Contains("belongs to somebody else") && !Contains("stolen"));
    // Others who own the directory above ours can put another one in its place.
    REQUIRE(::chown(theirs.parent_path().c_str(), 0, 0) == 0);
    REQUIRE(::chown(theirs.parent_path().parent_path().c_str(), kNobody, kNobody) == 0);
    const std::string said = host.start();
    CHECK_THAT(said, Contains("others could change") && !Contains("runs"));
    CHECK_THAT(said, Contains(host.xdg) && !Contains("stolen"));
}

TEST_CASE("the agent on PATH is used if it is of this build and only ours", "[agent]") {
    const HostHere host;
    const fs::path installed = host.home / "bin/dtrun-agent";
    write_file(installed, kAgent, 0755);
    CHECK(host.start() == fmt::format("runs {} \n", installed.native()));
    CHECK_FALSE(fs::exists(host.cache()));
    const std::string sweep = remote_sweep_command({"98", kBuild}, "77", 3);
    CHECK(host.run(sweep) == fmt::format("runs {} --sweep 77 3\n", installed.native()));
    REQUIRE(::chmod(installed.parent_path().c_str(), 0777) == 0);
    CHECK_THAT(host.start(), Contains("wanted"));
    CHECK(host.run(sweep) == fmt::format("runs {} --sweep 77 3\n", host.agent().native()));
    CHECK(host.run(remote_sweep_command({"98", "99"}, "77", 3)) == "");
}

TEST_CASE("a sweep passes over the agent of another CPU that shares the home", "[agent]") {
    const HostHere host;
    CHECK_THAT(host.start(), Contains("runs " + host.agent().native()));  // copied
    const fs::path foreign = host.cache() / "agent-98";
    write_file(foreign, "\177ELF", 0755);
    REQUIRE(
        std::system(fmt::format("cksum <{} >{}/.sum-98", foreign.native(), host.cache().native())
                        .c_str()) == 0);
    CHECK(host.run(remote_sweep_command({"98", kBuild}, "77", 3)) ==
          fmt::format("runs {} --sweep 77 3\n", host.agent().native()));
}

TEST_CASE("the agent of a dtrun on PATH is used, also when that is a link into another prefix",
          "[agent]") {
    const HostHere host;
    const fs::path prefix = host.home / "tool";
    const fs::path installed = prefix / "libexec/dtrun/dtrun-agent";
    write_file(installed, kAgent, 0755);
    write_file(prefix / "bin/dtrun", "", 0755);
    fs::create_directories(host.home / "bin");
    fs::create_symlink(prefix / "bin/dtrun", host.home / "bin/dtrun");
    CHECK(host.start() == fmt::format("runs {} \n", installed.native()));
    CHECK(host.run_step("go\n") ==
          fmt::format("@n1 dtrun-agent-found\nruns {} --node n1\n", installed.native()));
    const std::string sweep = remote_sweep_command({"98", kBuild}, "77", 3);
    CHECK(host.run(sweep) == fmt::format("runs {} --sweep 77 3\n", installed.native()));
    // Of another build it is left alone.
    write_file(installed, "#!/bin/sh\necho 77\n", 0755);
    CHECK_THAT(host.start(), Contains("wanted") && Contains("runs " + host.agent().native()));
}

TEST_CASE("the agent of this CPU is used that a dtrun of another one has beside its own",
          "[agent]") {
    const HostHere host;
    const fs::path prefix = host.home / "shared";
    write_file(prefix / "libexec/dtrun/dtrun-agent", "#!/bin/sh\necho 98\n", 0755);
    const fs::path installed =
        prefix / fmt::format("libexec/dtrun/dtrun-agent-{}", transport::own_cpu());
    write_file(installed, kAgent, 0755);
    write_file(prefix / "bin/dtrun", "", 0755);
    fs::create_directories(host.home / "bin");
    fs::create_symlink(prefix / "bin/dtrun", host.home / "bin/dtrun");
    CHECK(host.start() == fmt::format("runs {} \n", installed.native()));
    CHECK_FALSE(fs::exists(host.cache()));
}

TEST_CASE("agents that nobody has used for a month go when another one comes", "[agent]") {
    const HostHere host;
    write_file(host.cache() / "agent-01", "");
    write_file(host.cache() / "agent-02", "");
    write_file(host.cache() / ".new.n.1", "");
    write_file(host.cache() / "package-01/lib/file", "");
    write_file(host.cache() / "package-02/lib/file", "");
    const std::string age = fmt::format(
        "cd {} && touch -d '40 days ago' agent-01 .new.n.1 package-01", host.cache().native());
    REQUIRE(std::system(age.c_str()) == 0);
    REQUIRE_THAT(host.start(), Contains("runs"));
    CHECK_FALSE(fs::exists(host.cache() / "agent-01"));
    CHECK_FALSE(fs::exists(host.cache() / ".new.n.1"));
    CHECK_FALSE(fs::exists(host.cache() / "package-01"));
    CHECK(fs::exists(host.cache() / "agent-02"));
    CHECK(fs::exists(host.cache() / "package-02/lib/file"));
    CHECK(fs::exists(host.agent()));
}

TEST_CASE("a node of a step finds the agent beside dtrun, or stores it, and tells its name",
          "[agent][slurm]") {
    const HostHere host;
    const fs::path beside = host.home / "beside dtrun/agent";
    const std::string command = node_agent_command({beside, kBuild}, kJob);
    const std::string stored = fmt::format("runs {} --node n1\n", host.agent().native());
    const std::string agent = kAgent;
    const Sent sent{agent, agent.size()};
    const auto copied = [&sent](std::string_view bytes) {
        return fmt::format("{} {} {}\n{}go\n", sent.bytes.size(), machine(), sent.announcement(),
                           bytes);
    };
    const std::string is_stored = "@n1 dtrun-agent-stored\n";
    const std::string first = host.answer(command, copied(agent));
    CHECK_THAT(first, Catch::StartsWith("@n1 dtrun-agent-wanted " + machine() + " gzip n1.") &&
                          Catch::EndsWith("\n" + is_stored + stored));
    CHECK(host.answer(command, copied(agent)) == "@n1 dtrun-agent-found\n" + is_stored + stored);
    CHECK(host.answer(command, "go\n") == "@n1 dtrun-agent-found\n" + stored);
    write_file(beside, kAgent, 0755);
    CHECK(host.answer(command, copied(agent)) ==
          fmt::format("@n1 dtrun-agent-found\n{}runs {} --node n1\n", is_stored, beside.native()));
    REQUIRE(::chmod(beside.c_str(), 0775) == 0);
    CHECK(host.answer(command, copied(agent)) == "@n1 dtrun-agent-found\n" + is_stored + stored);
    write_file(host.agent(), "", 0700);
    CHECK_THAT(host.answer(command, copied("#!")), Contains("@n1 dtrun-agent-failed cannot store"));
}

TEST_CASE("hosts that have one home call it by one name, and each job has its own", "[agent]") {
    const HostHere host;
    const auto home_of = [&host](const std::string& job) {
        const std::string said =
            host.answer(remote_agent_command({"/nowhere", kBuild}, job), "none");
        const std::string line = said.substr(0, said.find('\n'));
        return line.substr(line.rfind(' ') + 1);
    };
    const std::string first = home_of("77");
    CHECK_THAT(first, Contains("."));
    CHECK(home_of("77") == first);
    CHECK(home_of("78") != first);
    REQUIRE_THAT(host.start(), Contains("runs"));
    CHECK(fs::exists(fs::symlink_status(host.cache() / ".first-78")));
    CHECK_FALSE(fs::exists(fs::symlink_status(host.cache() / ".first-77")));

    // The agent comes by another job while this one begins to ask.
    const fs::path away = host.home / "away";
    fs::rename(host.cache(), away);
    write_file(host.home / "bin/readlink",
               fmt::format("#!/bin/sh\n[ ! -L {0}/.first-79 ] || cp -p {1}/agent-* {1}/.sum-* {0}\n"
                           "exec /bin/readlink \"$@\"\n",
                           host.cache().native(), away.native()),
               0755);
    CHECK_THAT(
        host.answer(remote_agent_command({"/nowhere", kBuild}, "79"), fmt::format("{}\n", kBuild)),
        Contains("dtrun-agent-wanted") && Contains("runs"));
    CHECK_FALSE(fs::exists(fs::symlink_status(host.cache() / ".first-79")));
}

TEST_CASE("a host is told that another one has stored the agent, and asks for it if it has not",
          "[agent]") {
    const HostHere host;
    const std::string command = remote_agent_command({"/nowhere", kBuild}, kJob);
    const std::string agent = kAgent;
    const Sent sent{agent, agent.size()};
    const std::string look = fmt::format("{}\n", kBuild);
    const std::string said =
        host.answer(command, look + fmt::format("{}\n{}", sent.announcement(), agent));
    CHECK_THAT(
        said,
        Contains(fmt::format(
            "\ndtrun-agent-wanted {} gzip,tcp,python\ndtrun-agent-send\ndtrun-agent-stored\nruns ",
            machine())));
    // It comes between the first look and the answer.
    write_file(host.home / "bin/readlink",
               fmt::format("#!/bin/sh\nmv {0}.away {0}\necho n1.1\n", host.agent().native()), 0755);
    fs::rename(host.agent(), host.agent().native() + ".away");
    CHECK(host.answer(command, look) ==
          fmt::format("dtrun-agent-wanted {} gzip,tcp,python n1.1\nruns /proc/self/fd/9 --as {}\n",
                      machine(), host.agent().native()));
}

TEST_CASE("of nodes of a step that have one home one stores the agent", "[agent][slurm]") {
    const HostHere host;
    fs::create_directories(host.cache());
    const fs::path first = host.cache() / (".first-77-" + std::string(machine()));
    fs::create_symlink("n2.1", first);
    fs::create_symlink(
        "n3.1", host.cache() / ".first-77-of-another-cpu");  // whose nodes store another agent
    const std::string agent = kAgent;
    const std::string answered = step_answer({agent, agent.size()});
    CHECK(host.run_step(answered) ==
          fmt::format("@n1 dtrun-agent-wanted {} gzip n2.1\n@n1 dtrun-agent-stored\n@n1 "
                      "dtrun-agent-failed another node has stored the agent in {}, where this one "
                      "does not see it\n",
                      machine(), host.cache().native()));
    CHECK_FALSE(fs::exists(host.agent()));
    fs::remove(first);
    CHECK_THAT(host.run_step(answered), Contains("stored") && Contains("runs"));
}

TEST_CASE("a host fetches the agent from another one, and hands it on", "[agent]") {
    const HostHere host;
    const std::string agent = kAgent;
    const Sent sent{gzip(agent) + kPackage, gzip(agent).size(), "gzip"};
    const Giver giver(sent.bytes);
    const std::string said =
        host.answer(remote_agent_command({"/nowhere", kBuild}, kJob),
                    fmt::format("{} word 10 0 {} 127.0.0.1\n", sent.announcement(), giver.port));
    CHECK_THAT(said,
               Contains(" gzip,tcp,python ") && !Contains("dtrun-agent-send") &&
                   Contains(fmt::format(
                       "\ndtrun-agent-fetched\ndtrun-agent-stored\nruns {} --hand-on word 8\n",
                       host.agent().native())));
    CHECK(read_file(host.agent()).value() == agent);
    CHECK(read_file(host.package()).value() == kPackage);
    // What is handed on has no name, which would stay where the agent does not run.
    CHECK(read_file(host.home / "handed").value() == sent.bytes);
    for (const auto& entry : fs::directory_iterator(host.cache()))
        CHECK_THAT(entry.path().filename().native(), !Catch::StartsWith(".new."));
}

namespace {

/// A host whose Python may take its time, as this machine may be busy.
void have_time(const HostHere& host) {
    write_file(host.home / "bin/timeout", "#!/bin/sh\nshift; exec \"$@\"\n", 0755);
}

}  // namespace

TEST_CASE("a host that has Python receives the agent by that, be it from here or from another one",
          "[agent]") {
    const std::string agent = kAgent;
    const Sent sent{gzip(agent) + kPackage, gzip(agent).size(), "gzip"};
    const std::string program =
        fmt::format("{} word 10 {}\n{}", sent.announcement(), kCarrier.size(), kCarrier);
    const auto is_stored = [&](const HostHere& host, const std::string& said) {
        INFO(said);
        CHECK_THAT(said, Contains("\ndtrun-agent-receives "));
        CHECK_THAT(said, Catch::EndsWith(fmt::format("\nruns {} \n", host.agent().native())));
        CHECK(read_file(host.agent()).value() == agent);
        CHECK(read_file(host.package()).value() == kPackage);
        for (const auto& entry : fs::directory_iterator(host.cache()))
            CHECK_THAT(entry.path().filename().native(), !Catch::StartsWith(".new."));
    };
    const std::string command = remote_agent_command({"/nowhere", kBuild}, kJob);
    const HostHere from_here;
    have_time(from_here);
    const std::string said = from_here.answer(command, program + "\n" + sent.bytes);
    is_stored(from_here, said);
    CHECK_THAT(said, Contains("\ndtrun-agent-send\n"));
    const HostHere from_other;
    have_time(from_other);
    const Giver giver(sent.bytes);
    const std::string fetched =
        from_other.answer(command, fmt::format("{}{} 127.0.0.1\n", program, giver.port));
    is_stored(from_other, fetched);
    CHECK_THAT(fetched, Contains("\ndtrun-agent-fetched\n"));
}

TEST_CASE("where Python cannot receive the agent the host asks again", "[agent]") {
    const std::string agent = kAgent;
    const Sent sent{agent, agent.size()};
    const std::string command = remote_agent_command({"/nowhere", kBuild}, kJob);
    const std::string again = fmt::format("{} word 10 0\n{}", sent.announcement(), agent);
    const std::string program =
        fmt::format("{} word 10 {}\n{}", sent.announcement(), kCarrier.size(), kCarrier);
    // The one from which it comes breaks off: then Python may try another one.
    const HostHere host;
    have_time(host);
    const Giver giver(agent.substr(9));
    const std::string said =
        host.answer(command, fmt::format("{}{} 127.0.0.1\n{}", program, giver.port, again));
    CHECK_THAT(said, Contains("\ndtrun-agent-wanted " + machine() + " gzip,tcp,python\n") &&
                         Contains("\ndtrun-agent-send\ndtrun-agent-stored\nruns "));
    // Nobody listens there: that is said, so that dtrun soon knows that hosts do not reach each other.
    const HostHere apart;
    have_time(apart);
    CHECK_THAT(apart.answer(command, fmt::format("{}1 127.0.0.1\n{}", program, again)),
               Contains(" gzip,tcp,unreached,python\n") &&
                   Contains("\ndtrun-agent-send\ndtrun-agent-stored\nruns "));
    // It is broken itself, or lies on a file server that takes its time.
    for (const char* const does : {"exit 1", "echo no such module >&2; exit 1", "exec sleep 60"}) {
        INFO(does);
        const HostHere broken;
        write_file(broken.home / "bin/python3", fmt::format("#!/bin/sh\n{}\n", does), 0755);
        const auto began = std::chrono::steady_clock::now();
        const std::string without = broken.answer(command, program + again);
        CHECK_THAT(without, Contains("\ndtrun-agent-wanted " + machine() + " gzip,tcp\n") &&
                                Contains("\ndtrun-agent-send\ndtrun-agent-stored\nruns "));
        CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(30));
    }
}

TEST_CASE("a Python that ends while it reads, or cannot store what comes, is told", "[agent]") {
    const std::string agent = kAgent;
    const Sent sent{agent, agent.size()};
    const std::string command = remote_agent_command({"/nowhere", kBuild}, kJob);
    const std::string program =
        fmt::format("{} word 10 {}\n{}", sent.announcement(), kCarrier.size(), kCarrier);
    const HostHere host;
    have_time(host);
    std::string other = agent;
    other.back() = ' ';
    CHECK_THAT(host.answer(command, program + "\n" + other),
               Contains("dtrun-agent-failed cannot store the agent: it was damaged on its way"));
    CHECK(fs::is_empty(host.cache()));
    write_file(host.home / "bin/python3", "#!/bin/sh\necho carrier: taken >&2; exit 9\n", 0755);
    CHECK_THAT(host.answer(command, program),
               Contains("dtrun-agent-failed cannot store the agent: python3 has ended"));
}

TEST_CASE("a host that cannot fetch the agent, or gets another one, asks again", "[agent]") {
    const std::string agent = kAgent;
    const Sent sent{agent, agent.size()};
    std::string other = agent;
    other.back() = ' ';
    for (const std::string& bytes : {other, agent.substr(9), std::string()}) {
        const HostHere host;
        const Giver giver(bytes);
        const std::string said =
            host.answer(remote_agent_command({"/nowhere", kBuild}, kJob),
                        fmt::format("{0} word 10 0 {1} 127.0.0.1\n{0} word 10 0\n{2}",
                                    sent.announcement(), giver.port, agent));
        CHECK_THAT(said, Contains("\ndtrun-agent-wanted " + machine() + " gzip,tcp,python\n") &&
                             Contains("\ndtrun-agent-send\ndtrun-agent-stored\nruns ") &&
                             !Contains("fetched"));
        CHECK(read_file(host.agent()).value() == agent);
    }
}

}  // namespace dtrun
