#include "launcher/commands/info_command.h"

#include "base/build_id.h"
#include "base/log.h"
#include "base/own_program.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/cli/command.h"
#include "launcher/cli/help.h"
#include "launcher/cli/setters.h"
#include "launcher/commands/build_facts.h"
#include "launcher/doctor/backends_here.h"
#include "launcher/doctor/examine.h"
#include "launcher/transport/agent_file.h"

#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>
#include <cctype>
#include <future>
#include <utility>

namespace dtrun::commands {
namespace {

using enum cli::FlagGroup;

constexpr std::string_view kInfo = R"(usage: dtrun info

Prints what a bug report needs to say about this machine and this dtrun, to be
pasted as it is: versions of what dtrun contains and of what is installed here,
limits, interfaces. It contains no secrets and not your name: only variables of
dtrun and of communication libraries are shown, and none whose name suggests a
secret; your home is written "~".

Exit code: 0.
)";

constexpr cli::HelpSection kInfoSections[] = {{other, "About dtrun"}};

/// Variables that change how jobs run, and are nobody's secret.
bool is_of_interest(std::string_view name) {
    std::string upper(name);  // settings of Open MPI and PMIx are written small
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    for (const std::string_view secret :
         {"SECRET", "TOKEN", "KEY", "PASS", "CREDENTIAL", "DTRUN_OPTIONS"})
        if (upper.find(secret) != std::string::npos) return false;
    for (const std::string_view prefix :
         {"DTRUN_", "NCCL_", "GLOO_", "HOROVOD_", "OMPI_MCA_", "PMIX_MCA_", "UCX_", "FI_", "I_MPI_",
          "OMP_", "CUDA_VISIBLE", "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_STEP_ID",
          "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "VIRTUAL_ENV", "CONDA_PREFIX"})
        if (name.starts_with(prefix)) return true;
    return false;
}

/// The lines of a report, each a name and its value.
class Lines {
public:
    void add(std::string_view name, std::string_view value) {
        if (!value.empty()) text_ += two_columns(name, value, 16);
    }
    const std::string& text() const { return text_; }

private:
    std::string text_ = cli::version_text();
};

/// The agent goes to hosts by its build id.
std::string agent_text() {
    const auto agent = transport::find_agent();
    return agent ? fmt::format("{} (build {})", agent->path, agent->build_id)
                 : agent.error().message;
}

std::string backends_text(const Result<std::vector<doctor::BackendHere>>& backends) {
    if (!backends) return backends.error().message;
    std::vector<std::string> parts;
    for (const doctor::BackendHere& backend : *backends) {
        const std::string why = doctor::why_not(backend);
        parts.push_back(fmt::format("{}{}{}{}", backend.title, backend.version.empty() ? "" : " ",
                                    backend.version, why.empty() ? "" : ": " + why));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
}

void add_machine(const Result<doctor::DoctorReport>& report, Lines& lines) {
    if (!report) return lines.add("examination", report.error().message);
    const doctor::HostReport& here = report->hosts.front();
    if (here.why) lines.add("examination", *here.why);
    for (const HostFact& fact : here.facts) lines.add(fact.name, fact.value);
    if (!here.seen) return;
    for (const HostAddress& address : here.seen->addresses)
        lines.add("interface", fmt::format("{} {}/{} mtu {}", address.interface, address.address,
                                           address.prefix, address.mtu));
}

std::string info_text(const Result<doctor::DoctorReport>& report,
                      const Result<std::vector<doctor::BackendHere>>& backends,
                      plan::EnvironmentView environment) {
    Lines lines;
    lines.add("program", own_program().value_or("(not known)"));
    lines.add("agent", agent_text());
    lines.add("built with", build_text());
    lines.add("libraries", libraries_text());
    lines.add("backends", backends_text(backends));
    lines.add("C library", c_library_text());
    add_machine(report, lines);
    for (const std::string& variable : environment)
        if (is_of_interest(std::string_view(variable).substr(0, variable.find('='))))
            lines.add("variable", escaped(variable, 512));
    return lines.text();
}

/// Of a name or a folder, beyond which another one may go on.
bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

std::string replaced(std::string_view text, std::string_view word, std::string_view by) {
    std::string result;
    for (;;) {
        const std::size_t at = text.find(word);
        if (at == text.npos) return result += text;
        const std::size_t end = at + word.size();
        const bool whole = (at == 0 || !is_word(text[at - 1]) || !is_word(word.front())) &&
                           (end == text.size() || !is_word(text[end]));
        result += text.substr(0, at);
        result += whole ? by : word;
        text.remove_prefix(end);
    }
}

}  // namespace

std::string without_user(std::string_view text, std::string_view home, std::string_view user) {
    std::string result(text);
    while (home.size() > 1 && home.ends_with('/')) home.remove_suffix(1);
    if (home.size() > 1) result = replaced(result, home, "~");
    if (!user.empty() && user != "root") result = replaced(result, user, "USER");
    return result;
}

const cli::FlagTable<ParsedInfo>& info_flags() {
    static const cli::FlagTable<ParsedInfo> table("dtrun info", {cli::about_rows<ParsedInfo>()});
    return table;
}

int run_info(cli::Words words, plan::EnvironmentView environment) {
    ParsedInfo parsed;
    const auto rest = cli::read_options(info_flags(), words, parsed);
    if (!rest) return cli::complain(rest.error());
    if (parsed.asked == cli::Ask::help) return cli::print(info_help());
    if (parsed.asked == cli::Ask::version) return cli::print(cli::version_text());
    if (!rest->words.empty())
        return cli::complain(
            {Errc::invalid_input,
             fmt::format("'{}' is no option; usage: dtrun info", rest->words.front())});
    log::init("dtrun", log::Level::normal);
    auto backends = std::async(std::launch::async, doctor::ask_backends);
    plan::Options options;
    options.transport = plan::Transport::local;
    options.connect_timeout = doctor::kExamineTimeout;
    auto spec = doctor::plan_of_examination(std::move(options), environment);
    if (!spec) return cli::complain(spec.error());
    const auto report = doctor::examine(*spec);
    const std::string text = info_text(report, backends.get(), environment);
    const passwd* const user = ::getpwuid(::geteuid());
    doctor::leave_examination(cli::print(without_user(
        text, plan::find_variable(environment, "HOME").value_or(""), user ? user->pw_name : "")));
}

std::string info_help() {
    return std::string(kInfo) + cli::sections(info_flags().flags(), kInfoSections);
}

}  // namespace dtrun::commands
