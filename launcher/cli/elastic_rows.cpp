#include "launcher/cli/elastic_rows.h"

#include "base/strings.h"
#include "launcher/cli/setters.h"

#include <algorithm>
#include <cctype>
#include <chrono>

namespace dtrun::cli {

namespace {

using std::string_view;
using std::chrono::seconds;
using enum FlagGroup;

constexpr seconds kCooldownMax{3'600};
constexpr seconds kWarnTime{30};  // with --warn-signal alone

/// "MIN MAX", or "MIN,MAX" behind a '='; whole seconds, as with horovodrun.
Result<void> set_cooldown(ParsedRun& parsed, string_view value) {
    const std::size_t middle = std::min(value.find_first_of(" ,"), value.size());
    const auto least = to_int(value.substr(0, middle), 1, kCooldownMax.count());
    const auto most =
        to_int(value.substr(std::min(middle + 1, value.size())), 1, kCooldownMax.count());
    if (!least || !most || *least > *most)
        return fail(Errc::invalid_input,
                    "'{}' is not two numbers of seconds from 1 to {}, the smaller one first", value,
                    kCooldownMax.count());
    parsed.elastic.cooldown_min = seconds(*least);
    parsed.elastic.cooldown_max = seconds(*most);
    return {};
}

Result<void> set_allowed(ParsedRun& parsed, string_view value) {
    std::vector<int>& allowed = parsed.elastic.allowed;
    for (const string_view item : split(value, ',')) {
        const auto size = whole_number(trim(item), 1, kRanksMax);
        if (!size) return std::unexpected(size.error());
        allowed.push_back(*size);
    }
    std::ranges::sort(allowed);
    const auto [first, last] = std::ranges::unique(allowed);
    allowed.erase(first, last);
    return {};
}

Result<void> set_refill(ParsedRun& parsed, string_view value) {
    const auto choice = choose<Refill>(value, {{"auto", Refill::now},
                                               {"now", Refill::now},
                                               {"wait", Refill::wait},
                                               {"never", Refill::never}});
    return keep(choice, parsed.elastic.refill);
}

Result<void> set_warn_signal(ParsedRun& parsed, string_view value) {
    const auto signal = parse_signal(value);
    if (!signal) return std::unexpected(signal.error());
    parsed.elastic.warn_signal = *signal;
    if (!parsed.warn_time_given) parsed.elastic.warn_time = kWarnTime;
    return {};
}

Result<void> set_standby(ParsedRun& parsed, string_view value) {
    return keep(value.empty() ? Result<int>(0) : whole_number(value, 1, kSlotsMax),
                parsed.elastic.standby);
}

/// Names of modules, such as torch.nn.
Result<void> add_preload(ParsedRun& parsed, string_view value) {
    for (const string_view item : split(value, ',')) {
        const string_view name = trim(item);
        bool starts = true;  // a part of the name
        bool is_name = true;
        for (const char c : name) {
            const bool is_letter =
                std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0;
            const bool is_digit = c >= '0' && c <= '9';
            is_name = is_name && (is_letter || (!starts && (is_digit || c == '.')));
            starts = c == '.';
        }
        if (!is_name || starts)
            return fail(Errc::invalid_input, "'{}' is not the name of a Python module", name);
        parsed.elastic.preload.emplace_back(name);
    }
    return {};
}

/// Fails for flags that have no meaning in an elastic job.
Result<void> check_others(const ParsedRun& parsed) {
    const plan::Options& options = parsed.options;
    if (options.keep_going)
        return fail(Errc::invalid_input,
                    "--min-np and --keep-going exclude each other: an elastic job goes on with a "
                    "new world when a rank fails");
    if (options.max_restarts > 0)
        return fail(Errc::invalid_input,
                    "--min-np and --max-restarts exclude each other: an elastic job restarts its "
                    "ranks; --failure-limit and --reset-limit say how often");
    if (options.oversubscribe || options.map_by != MapBy::slot)
        return fail(Errc::invalid_input,
                    "--min-np: an elastic job has one rank in each slot, host by host; leave out "
                    "--oversubscribe and --map-by");
    const bool filtered = !options.include.empty() || !options.exclude.empty();
    if (filtered && !parsed.elastic.discovery_script.empty())
        return fail(Errc::invalid_input,
                    "--host-discovery-script: have the script itself leave hosts out, instead of "
                    "--include and --exclude");
    if (options.shape.any())
        return fail(Errc::invalid_input,
                    "--min-np: give the hosts with their slots, and leave out {}",
                    options.shape.count_flag.empty() ? "--nnodes" : options.shape.count_flag);
    return {};
}

/// --on-rank-failure continue: the launcher records what happens, and acts on nothing.
Result<void> leave_to_program(ParsedRun& parsed, std::span<const Flag> flags) {
    for (const GivenFlag& flag : parsed.given)
        if (flags[flag.row].group == elastic && flag.name != "--min-np" &&
            flag.name != "--min-num-proc")
            return fail(Errc::invalid_input,
                        "--on-rank-failure continue: the program itself decides who goes on; leave "
                        "out {}",
                        flag.name);
    plan::Options& options = parsed.options;
    if (options.max_restarts > 0)
        return fail(Errc::invalid_input,
                    "--on-rank-failure continue: dtrun restarts nobody then; leave out "
                    "--max-restarts");
    options.keep_going = options.recovers_itself = true;
    options.ranks_to_end_well = parsed.elastic.ranks_min.value_or(0);
    // The store must not end with the host of rank 0.
    if (!options.store_given) options.torch_store = TorchStore::proxy;
    return {};
}

/// Takes HOROVOD_ELASTIC_TIMEOUT unless a flag has said it.
Result<void> add_timeout(ParsedRun& parsed, plan::EnvironmentView environment) {
    const auto text = plan::find_variable(environment, "HOROVOD_ELASTIC_TIMEOUT");
    if (parsed.elastic_timeout_given || !text || text->empty()) return {};
    const auto time = parse_seconds(*text, std::chrono::milliseconds(0), kTimeoutMax);
    if (!time) return fail(time.error(), "HOROVOD_ELASTIC_TIMEOUT (in the environment)");
    parsed.elastic.timeout = *time;
    return {};
}

/// Fails for a warning that comes too late.
Result<void> check_warning(const ParsedRun& parsed) {
    if (parsed.elastic.warn_signal == 0 || parsed.elastic.warn_time.count() > 0) return {};
    return fail(Errc::invalid_input, "--warn-signal needs a --warn-time of more than 0");
}

/// Rank 0, which would read the standard input, may be another process on another host in each world.
Result<void> leave_input(ParsedRun& parsed, string_view flag) {
    const bool reads_input = std::ranges::any_of(
        parsed.given, [](const GivenFlag& given) { return given.name == "--stdin"; });
    if (reads_input && parsed.options.stdin_target.kind != StdinTarget::Kind::none)
        return fail(Errc::invalid_input,
                    "{}: ranks of an elastic job have no standard input; leave out --stdin", flag);
    parsed.options.stdin_target = {StdinTarget::Kind::none, 0};
    return {};
}

/// The first flag given that only elastic jobs have.
const GivenFlag* find_elastic(const ParsedRun& parsed, std::span<const Flag> flags) {
    const auto found = std::ranges::find_if(
        parsed.given, [&flags](const GivenFlag& flag) { return flags[flag.row].group == elastic; });
    return found == parsed.given.end() ? nullptr : &*found;
}

}  // namespace

Rows<ParsedRun> elastic_flags() {
    using plan::ElasticOptions;
    return {
        {{.names = "--min-np --min-num-proc",
          .metavar = "N",
          .group = elastic,
          .needs_agents = true,
          .argparse = "--min-np --min-num-proc",
          .help = "make the job elastic: it goes on with N or more ranks when hosts are lost, join "
                  "or leave (default: it ends)"},
         set_number<&ElasticOptions::ranks_min, 1, kRanksMax>},
        {{.names = "--max-np --max-num-proc",
          .metavar = "N",
          .group = elastic,
          .needs_agents = true,
          .argparse = "--max-np --max-num-proc",
          .help = "the most ranks the job may have (default: as many as there are slots)"},
         set_number<&ElasticOptions::ranks_max, 1, kRanksMax>},
        {{.names = "--allowed-np",
          .metavar = "LIST",
          .group = elastic,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .help = "only these numbers of ranks, such as 2,4,8 (default: any)"},
         set_allowed},
        {{.names = "--elastic-timeout",
          .metavar = "SECONDS",
          .group = elastic,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .argparse = "--elastic-timeout",
          .help = "how long to wait for --min-np slots, at the start for -np (default: "
                  "HOROVOD_ELASTIC_TIMEOUT, else 600)"},
         [](ParsedRun& parsed, string_view value) -> Result<void> {
             parsed.elastic_timeout_given = true;
             return set_seconds<&ElasticOptions::timeout, 0>(parsed, value);
         }},
        {{.names = "--reset-limit",
          .metavar = "N",
          .group = elastic,
          .in = {FlagScope::join, FlagScope::frontends},
          .needs_agents = true,
          .argparse = "--reset-limit",
          .help = "how often the set of ranks may change (default: any number)"},
         set_number<&ElasticOptions::reset_limit, 0, kRanksMax>},
        {{.names = "--failure-limit",
          .metavar = "N",
          .group = elastic,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .help = "how many ranks may fail and hosts be lost (default: any number, but a program "
                  "that fails 3 times in a row soon after its start ends the job)"},
         set_number<&ElasticOptions::failure_limit, 0, kRanksMax>},
        {{.names = "--blacklist-cooldown-range",
          .metavar = "MIN MAX",
          .group = elastic,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .argparse = "--blacklist-cooldown-range",
          .help = "seconds until a lost host is tried again: first MIN, then twice as long each "
                  "time up to MAX, plus a random part (default: 10 300)"},
         set_cooldown},
        {{.names = "--refill",
          .metavar = "auto|now|wait|never",
          .group = elastic,
          .needs_agents = true,
          .help = "what happens to the place of a failed rank while the others live on, as with "
                  "Horovod: a new rank joins them later (now); they wait 10 s for it (wait); its "
                  "host is left alone for a while (never) (default: auto, which is now)"},
         set_refill},
        {{.names = "--host-discovery-script",
          .metavar = "COMMAND",
          .group = elastic,
          .in = {FlagScope::torchrun},
          .needs_agents = true,
          .argparse = "--host-discovery-script",
          .excludes = "-H --hostfile",
          .help = "a command that lists the present hosts, one `host` or `host:slots` per line; it "
                  "runs again and again, so hosts may come and go (default: -H, the batch system, "
                  "or --hostfile, which may change)"},
         set_text<&ElasticOptions::discovery_script>},
        {{.names = "--discovery-interval",
          .metavar = "SECONDS",
          .group = elastic,
          .in = {FlagScope::torchrun},
          .needs_agents = true,
          .help = "time from the end of one run of that script to the next (default: 1)"},
         set_seconds<&ElasticOptions::discovery_interval, 100>},
        {{.names = "--slots-per-host --slots",
          .metavar = "N",
          .group = elastic,
          .needs_agents = true,
          .argparse = "--slots-per-host",
          .help = "slots of hosts that the script lists without a number (default: 1)"},
         set_number<&ElasticOptions::slots_per_host, 1, kSlotsMax>},
        {{.names = "--warn-time",
          .metavar = "SECONDS",
          .group = elastic,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .help = "before all ranks restart because hosts come or go, warn them this long in "
                  "advance (default: 0, with --warn-signal 30)"},
         [](ParsedRun& parsed, string_view value) -> Result<void> {
             parsed.warn_time_given = true;
             return set_seconds<&ElasticOptions::warn_time, 0>(parsed, value);
         }},
        {{.names = "--warn-signal",
          .metavar = "SIGNAL",
          .group = elastic,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .help = "the signal that warns them, such as USR1, in addition to DTRUN_CHANGE_FILE "
                  "(default: none)"},
         set_warn_signal},
        {{.names = "--spares",
          .metavar = "N",
          .group = elastic,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .help = "keep N hosts without ranks, beyond those that -np needs, to take the place of "
                  "lost ones (default: 0)"},
         set_number<&ElasticOptions::spares, 0, kHostsMax>},
        {{.names = "--standby",
          .metavar = "[=N]",
          .group = elastic,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .help = "keep N started processes of a Python program on each host, ready to become "
                  "ranks (default: none; --standby alone: one for each slot)"},
         set_standby},
        {{.names = "--preload",
          .metavar = "MODULES",
          .group = elastic,
          .in = {FlagScope::frontends},
          .needs_agents = true,
          .adds_up = true,
          .help = "modules that those processes import in advance, such as torch,numpy; repeatable "
                  "(default: none)"},
         add_preload},
    };
}

Result<void> add_elastic(ParsedRun& parsed, plan::EnvironmentView environment) {
    if (parsed.on_rank_failure == "continue") return leave_to_program(parsed, run_flags().flags());
    plan::ElasticOptions& asked = parsed.elastic;
    const GivenFlag* const given = find_elastic(parsed, run_flags().flags());
    const bool is_discovered = !asked.discovery_script.empty();
    if (!asked.ranks_min && !is_discovered) {
        if (parsed.on_rank_failure == "elastic")
            return fail(Errc::invalid_input, "--on-rank-failure elastic needs --min-np");
        if (given == nullptr) return {};
        return fail(Errc::invalid_input, "{} needs --min-np", given->name);
    }
    if (parsed.on_rank_failure == "end")
        return fail(Errc::invalid_input,
                    "--on-rank-failure end: a job that ends is not elastic; leave out {}",
                    given == nullptr ? "--min-np" : given->name);
    if (!asked.ranks_min) asked.ranks_min = parsed.options.world_size.value_or(1);
    const bool is_list_flag = std::ranges::any_of(parsed.given, [](const GivenFlag& flag) {
        return flag.name == "--discovery-interval" || flag.name == "--slots-per-host" ||
               flag.name == "--slots";
    });
    if (is_list_flag && !is_discovered)
        return fail(Errc::invalid_input,
                    "--discovery-interval and --slots-per-host need --host-discovery-script");
    if (!asked.preload.empty() && !asked.standby)
        return fail(Errc::invalid_input,
                    "--preload needs --standby: it says what processes that are kept ready import");
    if (asked.ranks_max && *asked.ranks_max < *asked.ranks_min)
        return fail(Errc::invalid_input, "--max-np {} is less than --min-np {}", *asked.ranks_max,
                    *asked.ranks_min);
    const int np = parsed.options.world_size.value_or(*asked.ranks_min);
    if (asked.ranks_max && np > *asked.ranks_max)
        return fail(Errc::invalid_input, "-np {} is more than --max-np {}", np, *asked.ranks_max);
    if (np < *asked.ranks_min)
        return fail(Errc::invalid_input, "-np {} is less than --min-np {}", np, *asked.ranks_min);
    const int most = asked.ranks_max.value_or(kRanksMax);
    if (!asked.allowed.empty() &&
        std::ranges::none_of(asked.allowed, [&](int n) { return n >= np && n <= most; }))
        return fail(Errc::invalid_input, "--allowed-np has no number from {} to {}", np, most);
    if (const auto done = check_others(parsed); !done) return done;
    if (const auto done = add_timeout(parsed, environment); !done) return done;
    if (const auto done = check_warning(parsed); !done) return done;
    if (const auto done = leave_input(parsed, "--min-np"); !done) return done;
    parsed.options.elastic = std::move(asked);
    return {};
}

Result<void> add_elastic_hosts(ParsedRun& parsed, std::span<const Flag> flags,
                               plan::EnvironmentView environment) {
    plan::Options& options = parsed.options;
    plan::HostShape& shape = options.shape;
    if (parsed.on_rank_failure == "continue" || parsed.on_rank_failure == "end")
        shape.elastic = false;
    if (parsed.on_rank_failure == "continue") return leave_to_program(parsed, flags);
    if (!shape.elastic && parsed.on_rank_failure == "elastic")
        return fail(Errc::invalid_input, "--on-rank-failure elastic: {}", shape.elastic_words);
    if (!shape.elastic) {
        const GivenFlag* const given = find_elastic(parsed, flags);
        if (given == nullptr) return {};
        return fail(Errc::invalid_input, "{} is for elastic jobs: {}", given->name,
                    shape.elastic_words);
    }
    if (options.keep_going)
        return fail(Errc::invalid_input,
                    "{} and --keep-going exclude each other: an elastic job goes on with a new "
                    "world when a rank fails",
                    shape.hosts_flag);
    if (options.map_by != MapBy::slot)
        return fail(Errc::invalid_input,
                    "{}: an elastic job fills host by host; leave out --map-by", shape.hosts_flag);
    if (const auto done = add_timeout(parsed, environment); !done) return done;
    if (const auto done = check_warning(parsed); !done) return done;
    if (const auto done = leave_input(parsed, shape.hosts_flag); !done) return done;
    parsed.elastic.rank_failure_limit = options.max_restarts;
    options.elastic = std::move(parsed.elastic);
    return {};
}

}  // namespace dtrun::cli
