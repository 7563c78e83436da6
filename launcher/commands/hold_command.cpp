#include "launcher/commands/hold_command.h"

#include "base/log.h"
#include "base/loop/asio.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "hostfiles/nodelist.h"
#include "launcher/cli/command.h"
#include "launcher/cli/defaults.h"
#include "launcher/cli/help.h"
#include "launcher/cli/setters.h"
#include "launcher/commands/ask_job.h"
#include "launcher/commands/detach.h"
#include "launcher/control/control_place.h"
#include "launcher/holder/start_holder.h"
#include "launcher/plan/exit_code.h"
#include "launcher/plan/host_offer.h"
#include "launcher/warm/holder_client.h"
#include "launcher/warm/warm_place.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <utility>
#include <vector>

namespace dtrun::commands {
namespace {

using enum cli::FlagGroup;

constexpr std::string_view kHold = R"(usage: dtrun hold [options]
       dtrun hold --list

Logs in to hosts as a job would, and stays logged in: your later jobs on this
machine use these log-ins, which takes a few milliseconds per host instead of a
log-in. Jobs do not see each other. A host is left when no job of yours has run
there for --keep-warm (default: 10m), by `dtrun release`, or at the end of the
batch job in which this was called. A job uses a log-in only if it would reach
the host in the same way (-H, -p, -i, ~/.ssh/config and so on); otherwise, or if
the host does not answer, it logs in by itself.

Exit code: 0 all hosts are held; 201 some are not, and a message names them; 200
none can be.
)";

constexpr std::string_view kRelease = R"(usage: dtrun release [options]

Logs out of the hosts that `dtrun hold` and --keep-warm stay logged in to: all
of them, or those of -H; where a job has ranks, as soon as it has ended.

Exit code: 0, even if nothing is held.
)";

constexpr cli::HelpSection kHoldSections[] = {{native, "How"},
                                              {hosts, "Which hosts"},
                                              {reaching, "Reaching them"},
                                              {output, "Messages"},
                                              {other, "About dtrun"}};
constexpr std::chrono::milliseconds kHoldersAnswerLimit{1'000};
constexpr std::chrono::seconds kReleaseLimit{10};

/// Those of `dtrun doctor` of these groups, which are of jobs, too.
cli::Rows<ParsedHold> shared_rows(std::initializer_list<cli::FlagGroup> groups) {
    auto rows = cli::rows_for<ParsedHold>(cli::run_flags().in_scope(cli::FlagScope::doctor));
    std::erase_if(rows, [groups](const cli::Row<ParsedHold>& row) {
        return std::ranges::count(groups, row.flag.group) == 0;
    });
    return rows;
}

cli::Rows<ParsedHold> hold_rows() {
    return {
        {{.names = "--keep-warm",
          .metavar = "TIME",
          .group = native,
          .help = "leave a host when no job has run there for this long, such as 90, 10m or 2h "
                  "(default: 10m)"},
         [](ParsedHold& parsed, std::string_view value) -> Result<void> {
             const auto time = cli::parse_time_span(value, cli::kTimeoutMax);
             if (!time) return std::unexpected(time.error());
             parsed.options.warm.keep = *time;
             return {};
         }},
        {{.names = "--wait-for-hosts",
          .metavar = "SECONDS",
          .group = reaching,
          .help = "keep trying hosts that are not up yet, such as machines that are booting, for "
                  "this long (default: 0)"},
         cli::set_seconds<&plan::Options::wait_for_hosts, 0>},
        {{.names = "--list -l", .group = native, .help = "list held hosts, and for how long"},
         [](ParsedHold& parsed, std::string_view) -> Result<void> {
             parsed.list = true;
             return {};
         }}};
}

const char* state_text(HeldState state) {
    switch (state) {
        case HeldState::logging_in:
            return "logging in";
        case HeldState::ready:
            return "ready";
        case HeldState::leaving:
            return "leaving";
        case HeldState::gone:
            break;
    }
    return "lost";
}

std::vector<std::string> holders_here(plan::EnvironmentView environment) {
    return warm::holder_sockets(
        control::control_folders(plan::find_variable(environment, "XDG_RUNTIME_DIR").value_or(""),
                                 plan::find_variable(environment, "HOME").value_or("")));
}

/// What all holders of this user say. One that has been killed leaves its socket, which is removed.
std::vector<HeldStatus> ask_holders(plan::EnvironmentView environment, WarmRequest request,
                                    std::chrono::milliseconds limit) {
    std::vector<warm::HolderAnswer> told;
    asio::io_context io(1);
    asio::co_spawn(io,
                   warm::ask_holders(holders_here(environment), std::move(request), after(limit)),
                   [&told](std::exception_ptr error, std::vector<warm::HolderAnswer> all) {
                       if (error) std::rethrow_exception(error);
                       told = std::move(all);
                   });
    io.run();
    std::vector<HeldStatus> hosts;
    for (const auto& [path, answer] : told) {
        if (answer)
            hosts.insert(hosts.end(), answer->hosts.begin(), answer->hosts.end());
        else if (answer.error().code == Errc::closed)
            ::unlink(path.c_str());
        else
            log::warn("{}", answer.error().message);
    }
    return hosts;
}

std::string held_table(const std::vector<HeldStatus>& hosts) {
    if (hosts.empty()) return "nothing is held\n";
    constexpr std::size_t kTextBytesMax = 200;
    std::string text = fmt::format("{:<20} {:<10} {:>5} {:>7} {:>10}  {}\n", "HOST", "STATE",
                                   "JOBS", "AGENTS", "LEFT IN", "WHY");
    for (const HeldStatus& host : hosts) {
        const bool counts = host.jobs == 0 && host.state != HeldState::leaving;
        const std::string row = fmt::format(
            "{:<20} {:<10} {:>5} {:>7} {:>10}  {}", escaped(host.host, kTextBytesMax),
            state_text(host.state), host.jobs, host.taken,
            counts ? duration_text(host.left_ms / 1000) : "-", escaped(host.why, kTextBytesMax));
        text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
}

std::string names_of(const std::vector<HeldStatus>& hosts, bool in_use) {
    std::vector<std::string> names;
    for (const HeldStatus& host : hosts)
        if ((host.jobs > 0) == in_use) names.push_back(host.host);
    return name_hosts(names);
}

Result<ParsedHold> parse_hold(cli::Words words, const cli::FlagTable<ParsedHold>& flags,
                              plan::EnvironmentView environment, std::string_view command) {
    ParsedHold parsed;
    const auto all = cli::with_defaults(words, flags, cli::run_flags().flags(), environment);
    if (!all) return std::unexpected(all.error());
    const auto rest = cli::read_options(flags, *all, parsed);
    if (!rest) return std::unexpected(rest.error());
    if (parsed.asked == cli::Ask::nothing && !rest->words.empty())
        return fail(Errc::invalid_input,
                    "'{0}' is no option; hosts are named by -H, as in dtrun {1} -H s1,s2",
                    rest->words.front(), command);
    return parsed;
}

}  // namespace

const cli::FlagTable<ParsedHold>& hold_flags() {
    static const cli::FlagTable<ParsedHold> table(
        "dtrun hold", {hold_rows(), shared_rows({hosts, reaching, output, other})});
    return table;
}

const cli::FlagTable<ParsedHold>& release_flags() {
    static const cli::FlagTable<ParsedHold> table("dtrun release",
                                                  {shared_rows({hosts, output, other})});
    return table;
}

int run_hold(cli::Words words, plan::EnvironmentView environment) {
    auto parsed = parse_hold(words, hold_flags(), environment, "hold");
    if (const auto status = cli::settled(parsed, hold_help)) return *status;
    log::init("dtrun", parsed->options.verbosity);
    if (parsed->list)
        return cli::print(held_table(ask_holders(environment, {}, kHoldersAnswerLimit)));
    const auto keep = parsed->options.warm.keep.value_or(holder::kKeepDefault);
    parsed->options.program = {"true"};  // nothing is run
    warn_within_rank("what is held", environment);
    const holder::Started started =
        holder::start_holder(std::move(parsed->options), environment, holder::Wait::until_tried);
    if (!started.has_begun) return plan::kExitUsage;
    if (started.held > 0 && log::enabled(log::Level::normal))
        log::warn("{} held until no job has run there for {}; dtrun release leaves {}",
                  started.held == 1 ? "1 host is" : fmt::format("{} hosts are", started.held),
                  duration_text(std::chrono::duration<double>(keep).count()),
                  started.held == 1 ? "it" : "them");
    if (started.held == 0) log::error("no host is held");
    return started.failed == 0 ? 0 : plan::kExitUnreachable;
}

int run_release(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_hold(words, release_flags(), environment, "release");
    if (const auto status = cli::settled(parsed, release_help)) return *status;
    log::init("dtrun", parsed->options.verbosity);
    WarmRequest request;
    request.wish = WarmWish::release;
    const plan::Options& options = parsed->options;
    if (!options.hosts.empty() || !options.hostfile.empty()) {
        const auto offer = plan::find_hosts(options, environment);
        if (!offer) return cli::complain(offer.error());
        for (const Host& host : offer->hosts) request.hosts.push_back(host.name);
    }
    const std::vector<HeldStatus> left =
        ask_holders(environment, std::move(request), kReleaseLimit);
    const std::string free = names_of(left, false), busy = names_of(left, true);
    std::string text;
    if (!free.empty()) text += fmt::format("left {}\n", free);
    if (!busy.empty()) text += fmt::format("left when their jobs have ended: {}\n", busy);
    return cli::print(text.empty() ? "nothing is held\n" : text);
}

std::string hold_help() {
    return std::string(kHold) + cli::sections(hold_flags().flags(), kHoldSections);
}

std::string release_help() {
    return std::string(kRelease) + cli::sections(release_flags().flags(), kHoldSections);
}

}  // namespace dtrun::commands
