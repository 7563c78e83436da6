#include "tests/cluster/support/slurm.h"

#include "base/strings.h"
#include "tests/cluster/support/ranks.h"

#include <fmt/format.h>
#include <unistd.h>
#include <stdexcept>
#include <utility>

namespace dtrun::cluster {
namespace {

constexpr const char* kSlurmScript = DTRUN_SOURCE_DIR "/tests/cluster/support/slurm.py";
constexpr int kNoSlurm = 77;  // exit status of the script

/// The value of "Key=value" in what scontrol shows; of the first one, if there are more.
std::string field_of(std::string_view text, std::string_view key) {
    for (const std::string_view line : split(text, '\n')) {
        for (const std::string_view word : split(line, ' ')) {
            if (word.starts_with(key)) return std::string(word.substr(key.size()));
        }
    }
    return {};
}

bool is_over(std::string_view state) {
    for (const char* live : {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING"}) {
        if (state == live) return false;
    }
    return true;
}

int number(std::string_view text) {
    const auto value = to_int(text, 0, 1 << 30);
    if (!value) throw std::runtime_error(fmt::format("no number: '{}'", text));
    return static_cast<int>(*value);
}

}  // namespace

Slurm::Slurm(Cluster& cluster) : cluster_(cluster) {
    script({"up"});
}

std::string Slurm::script(std::vector<std::string> words) const {
    words.insert(words.begin(), kSlurmScript);
    const Command command{std::move(words),
                          {"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                           fmt::format("CLUSTER_STATE={}", cluster_.state().native())},
                          "/",
                          {0, 0, "/root"}};
    const Finished done = Running({getpid(), {}}, command, {}).wait(milliseconds(120'000));
    if (done.exit_code == kNoSlurm) skip(std::string(trim(done.err)));
    if (done.exit_code != 0) throw std::runtime_error(done.out + done.err);
    return done.out;
}

/// Standard output of a command, which must exit 0.
std::string Slurm::ask(std::vector<std::string> argv) const {
    const std::string name = argv.at(0);
    const Finished done = cluster_.run("head", std::move(argv));
    if (done.exit_code != 0) throw std::runtime_error(fmt::format("{}: {}", name, done.err));
    return std::string(trim(done.out));
}

std::filesystem::path Slurm::output(int job, std::string_view kind) const {
    return cluster_.scratch() / fmt::format("job-{}.{}", job, kind);
}

int Slurm::sbatch(std::string_view script, std::vector<std::string> options, RunOptions how) {
    const std::string pattern = cluster_.scratch() / "job-%j";
    std::vector<std::string> argv{"sbatch", "--parsable", "--output=" + pattern + ".out",
                                  "--error=" + pattern + ".err"};
    argv.insert(argv.end(), options.begin(), options.end());
    how.stdin_text = script;
    const Finished done = cluster_.run("head", std::move(argv), how);
    if (done.exit_code != 0) throw std::runtime_error(done.err);
    return number(trim(done.out));
}

std::string Slurm::state(int job) const {
    return field_of(ask({"scontrol", "show", "job", std::to_string(job)}), "JobState=");
}

Slurm::JobEnd Slurm::wait_end(int job, milliseconds timeout) const {
    std::string shown;
    const auto over = [&] {
        shown = ask({"scontrol", "show", "job", std::to_string(job)});
        return is_over(field_of(shown, "JobState="));
    };
    if (!wait_until(over, timeout)) {
        throw std::runtime_error(fmt::format("job {} does not end:\n{}\n{}{}\n{}", job, shown,
                                             out(job), err(job), logs()));
    }
    const std::string code = field_of(shown, "ExitCode=");  // "3:0", "0:15"
    const std::size_t colon = code.find(':');
    return {field_of(shown, "JobState="), number(code.substr(0, colon)),
            number(code.substr(colon + 1)), out(job), err(job)};
}

void Slurm::wait_running(int job, milliseconds timeout) const {
    if (wait_until([&] { return state(job) == "RUNNING"; }, timeout)) return;
    throw std::runtime_error(fmt::format("job {} does not run but is {}\n{}{}\n{}", job, state(job),
                                         out(job), err(job), logs()));
}

void Slurm::expire(int job) {
    ask({"scontrol", "update", fmt::format("JobId={}", job), "TimeLimit=0"});
}

std::string Slurm::out(int job) const {
    return file_text(output(job, "out"));
}

std::string Slurm::err(int job) const {
    return file_text(output(job, "err"));
}

void Slurm::drain(std::string_view node) {
    ask({"scontrol", "update", fmt::format("NodeName={}", node), "State=DRAIN", "Reason=test"});
}

void Slurm::resume(std::string_view node) {
    ask({"scontrol", "update", fmt::format("NodeName={}", node), "State=RESUME"});
}

std::string Slurm::node_state(std::string_view node) const {
    return ask({"sinfo", "--noheader", "--format=%T", "--Node", fmt::format("--nodes={}", node)});
}

bool Slurm::wait_node_state(std::string_view node, std::string_view state,
                            milliseconds timeout) const {
    return wait_until([&] { return node_state(node) == state; }, timeout);
}

void Slurm::stop_daemon(std::string_view host) {
    script({"stop", std::string(host)});
}

void Slurm::start_daemon(std::string_view host) {
    script({"start", std::string(host)});
}

std::string Slurm::logs() const {
    return script({"logs"});
}

}  // namespace dtrun::cluster
