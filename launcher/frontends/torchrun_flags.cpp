// The flags of `dtrun torchrun`: torchrun's own, and those of `dtrun run` that do not clash.

#include "base/strings.h"
#include "launcher/cli/setters.h"
#include "launcher/frontends/torchrun.h"

#include <algorithm>
#include <iterator>

namespace dtrun::frontends {
namespace {

using std::string_view;
using enum cli::FlagGroup;

constexpr int kLocalRanksMax = kSlotsMax;

Result<void> set_nodes(ParsedTorchrun& parsed, string_view value) {
    const std::size_t colon = value.find(':');
    const auto min = to_int(value.substr(0, colon), 1, kHostsMax);
    const auto max =
        colon == string_view::npos ? min : to_int(value.substr(colon + 1), 1, kHostsMax);
    if (!min || !max || *min > *max)
        return fail(Errc::invalid_input, "'{}' is neither N nor MIN:MAX, of at least 1", value);
    parsed.own.nodes = value;
    plan::HostShape& shape = parsed.options.shape;
    shape.hosts_min = static_cast<int>(*min);
    shape.hosts_max = static_cast<int>(*max);
    shape.hosts_flag = fmt::format("--nnodes {}", value);
    return {};
}

Result<void> set_per_node(ParsedTorchrun& parsed, string_view value) {
    using enum plan::HostShape::Count;
    plan::HostShape& shape = parsed.options.shape;
    shape.count_flag = fmt::format("--nproc-per-node {}", value);
    if (const auto number = to_int(value, 1, kSlotsMax)) {
        shape.count = plan::HostShape::Count::number;
        shape.number = static_cast<int>(*number);
        return {};
    }
    if (value != "auto" && value != "gpu" && value != "cpu")
        return fail(Errc::invalid_input,
                    "'{}' is neither auto, gpu, cpu nor a number from 1 to {}; dtrun counts no "
                    "other devices",
                    value, kSlotsMax);
    shape.count = value == "auto" ? automatic : value == "gpu" ? gpu : cpu;
    return {};
}

/// host[:port], [v6] or [v6]:port.
Result<void> set_endpoint(ParsedTorchrun& parsed, string_view value) {
    const string_view endpoint = trim(value);
    const bool bare_v6 = endpoint.starts_with('[') && endpoint.ends_with(']');
    const std::size_t colon = bare_v6 ? string_view::npos : endpoint.rfind(':');
    string_view host = endpoint.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    const bool host_ok = !host.empty() && std::ranges::all_of(host, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               string_view("_.:-").find(c) != string_view::npos;
    });
    const bool port_ok =
        colon == string_view::npos || to_int(endpoint.substr(colon + 1), 0, 65'535);
    if (!endpoint.empty() && (!host_ok || !port_ok))
        return fail(Errc::invalid_input, "'{}' is not HOST, HOST:PORT or [IPV6]:PORT", value);
    parsed.own.endpoint = endpoint;
    parsed.own.endpoint_host = host;
    return {};
}

/// As torch reads it.
std::optional<bool> to_bool(string_view text) {
    constexpr string_view kYes[] = {"1", "true", "t", "yes", "y"};
    constexpr string_view kNo[] = {"0", "false", "f", "no", "n"};
    std::string low(text);
    std::ranges::transform(low, low.begin(), [](unsigned char c) { return std::tolower(c); });
    if (std::ranges::find(kYes, low) != std::end(kYes)) return true;
    if (std::ranges::find(kNo, low) != std::end(kNo)) return false;
    return std::nullopt;
}

/// One of --rdzv-conf; most have no effect, and are told.
Result<void> set_conf_item(ParsedTorchrun& parsed, string_view key, string_view value) {
    if (key == "is_host") {
        parsed.own.is_host = to_bool(value);
        if (parsed.own.is_host) return {};
        return fail(Errc::invalid_input, "{}: '{}' is neither true nor false", key, value);
    }
    const bool is_last_call = key == "last_call_timeout";
    if (key != "join_timeout" && key != "timeout" && !is_last_call) {
        parsed.own.unused_conf.emplace_back(key);
        return {};
    }
    const auto least = is_last_call ? std::chrono::milliseconds(0) : cli::kTimeoutMin;
    const auto time = cli::parse_seconds(value, least, cli::kTimeoutMax);
    if (!time) return fail(time.error(), "{}", key);
    if (is_last_call)
        parsed.own.last_call = *time;
    else
        parsed.options.start_timeout = *time;
    if (key == "join_timeout") parsed.own.join_timeout = *time;
    return {};
}

/// Reads k=v,k=v.
Result<void> set_conf(ParsedTorchrun& parsed, string_view value) {
    parsed.own.unused_conf.clear();
    if (trim(value).empty()) return {};
    for (const string_view item : split(value, ',')) {
        const std::size_t equals = item.find('=');
        const string_view key = trim(item.substr(0, equals));
        const string_view text =
            equals == string_view::npos ? string_view{} : trim(item.substr(equals + 1));
        if (key.empty() || text.empty())
            return fail(Errc::invalid_input, "'{}' is not KEY=VALUE,KEY=VALUE", value);
        if (const auto done = set_conf_item(parsed, key, text); !done) return done;
    }
    return {};
}

Result<void> check_interval(ParsedTorchrun&, string_view value) {
    const auto time = cli::parse_seconds(value, std::chrono::milliseconds(0), cli::kTimeoutMax);
    if (!time) return std::unexpected(time.error());
    return {};
}

Result<void> check_start_method(ParsedTorchrun&, string_view value) {
    if (value == "spawn" || value == "fork" || value == "forkserver") return {};
    return fail(Errc::invalid_input, "'{}' is not one of spawn, fork and forkserver", value);
}

Result<void> check_event_handler(ParsedTorchrun&, string_view value) {
    if (value == "null") return {};
    return fail(Errc::invalid_input,
                "'{}' is a handler of torchrun's own events, which dtrun does not have; only null",
                value);
}

Result<void> check_logs_specs(ParsedTorchrun&, string_view value) {
    if (value == "default") return {};
    return fail(Errc::invalid_input,
                "'{}' is a plug-in of torchrun's own; dtrun writes the files itself; only default",
                value);
}

template <plan::RankOutput::Streams TorchrunArgs::*Member>
Result<void> set_streams(ParsedTorchrun& parsed, string_view value) {
    auto streams = parse_streams(value);
    if (!streams) return std::unexpected(streams.error());
    parsed.own.*Member = std::move(*streams);
    return {};
}

Result<void> set_local_ranks(ParsedTorchrun& parsed, string_view value) {
    std::vector<std::uint32_t> ranks;
    for (const string_view item : split(value, ',')) {
        const auto rank = to_int(trim(item), 0, kLocalRanksMax - 1);
        if (!rank)
            return fail(Errc::invalid_input, "'{}' is not a list of local ranks such as 0,1,2",
                        value);
        ranks.push_back(static_cast<std::uint32_t>(*rank));
    }
    parsed.own.local_ranks = std::move(ranks);
    return {};
}

/// 0 is any free port, as without the flag.
Result<void> set_master_port(ParsedTorchrun& parsed, string_view value) {
    const auto number = cli::whole_number(value, 0, 65'535);
    if (!number) return std::unexpected(number.error());
    parsed.own.master_port.reset();
    if (*number > 0) parsed.own.master_port = *number;
    return {};
}

Result<void> set_signals(ParsedTorchrun& parsed, string_view value) {
    static constexpr string_view kForwarded[] = {"SIGTERM", "SIGINT",  "SIGHUP",  "SIGQUIT",
                                                 "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT"};
    parsed.own.unforwarded.clear();
    for (const string_view item : split(value, ',')) {
        const string_view name = trim(item);
        if (!name.starts_with("SIG"))
            return fail(Errc::invalid_input, "'{}' is not a signal's name, as SIGTERM is", name);
        if (std::ranges::find(kForwarded, name) == std::end(kForwarded))
            parsed.own.unforwarded.emplace_back(name);
    }
    return {};
}

/// torch's modes look at the GPU of the local rank; without GPUs ranks take such parts of the host in turn.
Result<void> set_numa_binding(ParsedTorchrun& parsed, string_view value) {
    const auto to = cli::choose<BindTo>(value, {{"node", BindTo::numa},
                                                {"socket", BindTo::socket},
                                                {"exclusive", BindTo::share},
                                                {"core-complex", BindTo::l3}});
    if (!to) return std::unexpected(to.error());
    parsed.options.binding.to = *to;
    parsed.options.binding.by = MapWithin::automatic;
    return {};
}

cli::Rows<ParsedTorchrun> node_flags() {
    return {
        {{.names = "--nnodes",
          .metavar = "N|MIN:MAX",
          .group = native,
          .help =
              "how many of the given hosts to use, the first ones; MIN:MAX makes the job elastic: "
              "it goes on with MIN to MAX hosts when some are lost or join (default: all hosts)"},
         set_nodes},
        {{.names = "--nproc-per-node",
          .metavar = "N|auto|gpu|cpu",
          .group = native,
          .help = "ranks on each host: a number, or one for each GPU or processor; auto: the given "
                  "slots, else GPUs, else processors (default: the slots; 1 without hosts)"},
         set_per_node},
        {{.names = "--standalone",
          .group = native,
          .help = "use this machine alone; --rdzv-* is ignored"},
         cli::set_true<&TorchrunArgs::standalone>},
        {{.names = "--node-rank",
          .metavar = "N",
          .group = native,
          .help = "the number of this node, if the same command is run on each of --nnodes nodes"},
         cli::set_number<&TorchrunArgs::node_rank, 0, kHostsMax>},
    };
}

cli::Rows<ParsedTorchrun> rendezvous_flags() {
    return {
        {{.names = "--rdzv-id",
          .metavar = "ID",
          .group = native,
          .help = "TORCHELASTIC_RUN_ID (default: the job's id)"},
         cli::set_text<&TorchrunArgs::run_id>},
        {{.names = "--rdzv-backend",
          .metavar = "NAME",
          .group = native,
          .help = "dtrun: start one node's ranks of a job of the `dtrun serve` at --rdzv-endpoint; "
                  "other values have no effect, since dtrun brings ranks together itself"},
         cli::set_text<&TorchrunArgs::backend>},
        {{.names = "--rdzv-endpoint",
          .metavar = "HOST[:PORT]",
          .group = native,
          .help = "with --rdzv-backend dtrun, the daemon's address; if the same command is run on "
                  "every node, the node where they meet (else not needed)"},
         set_endpoint},
        {{.names = "--rdzv-conf",
          .metavar = "K=V,...",
          .group = native,
          .help = "join_timeout and timeout mean --start-timeout, in an elastic job join_timeout "
                  "means --elastic-timeout; is_host and last_call_timeout apply where nodes meet "
                  "by themselves; others have no effect, and a warning says so"},
         set_conf},
        {{.names = "--master-addr",
          .metavar = "HOST",
          .group = native,
          .help = "MASTER_ADDR, where rank 0 then serves torch's store (default: dtrun serves it)"},
         cli::set_text<&TorchrunArgs::master_addr>},
        {{.names = "--master-port",
          .metavar = "PORT",
          .group = native,
          .help = "MASTER_PORT, likewise (default: a free one)"},
         set_master_port},
        {{.names = "--local-addr",
          .metavar = "ADDRESS",
          .group = native,
          .help = "accepted: --network-interfaces chooses interfaces"},
         cli::set_text<&TorchrunArgs::local_addr>},
    };
}

cli::Rows<ParsedTorchrun> torchrun_program_flags() {
    return {
        {{.names = "-m --module", .group = native, .help = "the script is a module, for python -m"},
         cli::set_true<&TorchrunArgs::module>},
        {{.names = "--no-python",
          .group = native,
          .help = "the script is a program: no python before it"},
         cli::set_true<&TorchrunArgs::no_python>},
        {{.names = "--run-path", .group = native, .help = "run the script with runpy.run_path"},
         cli::set_true<&TorchrunArgs::run_path>},
        {{.names = "--role",
          .metavar = "NAME",
          .group = native,
          .help = "ROLE_NAME, also in the prefix of lines (default: default)"},
         cli::set_text<&plan::Options::role>},
        {{.names = "--max-restarts",
          .metavar = "N",
          .group = native,
          .help = "how often to end all ranks and start them again when one fails; hosts that an "
                  "elastic job loses do not count (default: 0)"},
         cli::set_number<&plan::Options::max_restarts, 0, cli::kRestartsMax>},
        {{.names = "--numa-binding",
          .metavar = "MODE",
          .group = native,
          .excludes = "--bind-to --map-by",
          .help = "bind ranks near their GPUs: node, socket, exclusive (an equal part of the "
                  "node's cores) or core-complex (cores of an L3 cache) (default: no binding)"},
         set_numa_binding},
        {{.names = "--shutdown-timeout",
          .metavar = "SECONDS",
          .group = native,
          .help = "time between SIGTERM and SIGKILL, as --grace (default: "
                  "TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30)"},
         cli::set_seconds<&plan::Options::grace, 0>},
        {{.names = "--signals-to-handle",
          .metavar = "NAMES",
          .group = native,
          .help = "accepted: dtrun forwards SIGTERM, INT, HUP, QUIT, USR1, USR2, TSTP and CONT"},
         set_signals},
        {{.names = "--use-env",
          .group = native,
          .help = "accepted: ranks find LOCAL_RANK in their environment"},
         cli::nothing},
        {{.names = "--start-method",
          .metavar = "NAME",
          .group = native,
          .help = "accepted: programs are started, not functions"},
         check_start_method},
        {{.names = "--monitor-interval",
          .metavar = "SECONDS",
          .group = native,
          .help = "accepted: nothing polls"},
         check_interval},
        {{.names = "--event-log-handler",
          .metavar = "null",
          .group = native,
          .help = "accepted; other handlers are refused"},
         check_event_handler},
        {{.names = "--logs-specs",
          .metavar = "default",
          .group = native,
          .help = "accepted; plug-ins are refused"},
         check_logs_specs},
    };
}

cli::Rows<ParsedTorchrun> log_flags() {
    return {
        {{.names = "--log-dir",
          .metavar = "DIR",
          .group = native,
          .help =
              "where the files of --redirects and --tee go: "
              "DIR/RUN_XXXXXXXX/[HOST/]attempt_N/LOCAL-RANK (default: /tmp/torchelastic_XXXXXXXX)"},
         cli::set_text<&TorchrunArgs::log_dir>},
        {{.names = "-r --redirects",
          .metavar = "STREAMS",
          .group = native,
          .help = "streams that are written to files instead of being shown: 1 stdout, 2 stderr, 3 "
                  "both, or 0:1,1:3 by local rank (default: 0)"},
         set_streams<&TorchrunArgs::redirects>},
        {{.names = "-t --tee",
          .metavar = "STREAMS",
          .group = native,
          .help = "streams that are both written to files and shown, with [ROLELOCAL-RANK]: before "
                  "each line (default: 0)"},
         set_streams<&TorchrunArgs::tee>},
        {{.names = "--local-ranks-filter",
          .metavar = "RANKS",
          .group = native,
          .help = "show only these local ranks, such as 0,1 (default: all)"},
         set_local_ranks},
    };
}

cli::Rows<ParsedTorchrun> torchrun_refused_flags() {
    return {
        {{.names = "--virtual-local-rank",
          .group = native,
          .refused =
              "LOCAL_RANK is a rank's index on its host, and every rank there sees the same GPUs"}},
        {{.names = "--duplicate-stdout-filters --duplicate-stderr-filters",
          .metavar = "FILTERS",
          .group = native,
          .refused = "dtrun copies no lines; grep the files of --tee"}},
        {{.names = "-np -n --num-proc",
          .metavar = "N",
          .group = hosts,
          .refused = "say --nnodes and --nproc-per-node"}},
        {{.names = "--output-dir --output-filename",
          .metavar = "DIR",
          .group = output,
          .refused = "say --log-dir, with --redirects or --tee"}},
    };
}

}  // namespace

Result<plan::RankOutput::Streams> parse_streams(string_view text) {
    plan::RankOutput::Streams streams;
    if (const auto all = to_int(text, 0, 3)) {
        streams.otherwise = static_cast<std::uint8_t>(*all);
        return streams;
    }
    for (const string_view item : split(text, ',')) {
        const std::size_t colon = item.find(':');
        const auto rank = to_int(item.substr(0, colon), 0, kLocalRanksMax - 1);
        const auto value =
            colon == string_view::npos ? std::nullopt : to_int(item.substr(colon + 1), 0, 3);
        if (!rank || !value)
            return fail(Errc::invalid_input,
                        "'{}' is neither 0 (none), 1 (stdout), 2 (stderr) or 3 (both), nor "
                        "LOCAL-RANK:VALUE,... such as 0:1,1:3",
                        text);
        streams.of_local_rank[static_cast<std::uint32_t>(*rank)] =
            static_cast<std::uint8_t>(*value);
    }
    return streams;
}

const cli::FlagTable<ParsedTorchrun>& torchrun_flags() {
    static const cli::FlagTable<ParsedTorchrun> table(
        "dtrun torchrun",
        {node_flags(), rendezvous_flags(), torchrun_program_flags(), log_flags(),
         torchrun_refused_flags(),
         cli::rows_for<ParsedTorchrun>(cli::run_flags().in_scope(cli::FlagScope::torchrun))});
    return table;
}

}  // namespace dtrun::frontends
