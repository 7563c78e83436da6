#pragma once

#include "hostfiles/placement.h"
#include "launcher/plan/host_shape.h"
#include "launcher/plan/log_options.h"
#include "launcher/plan/rank_set.h"
#include "launcher/plan/tag.h"
#include "launcher/plan/transports.h"
#include "rendezvous/job/membership.h"
#include "rendezvous/wire/binding_request.h"
#include "rendezvous/wire/job_settings.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::plan {

/// What --plan prints; `none` runs the job.
enum class PlanFormat { none, text, json };

/// Where the two outputs of the ranks go, in the words of torchrun.
struct RankOutput {
    enum class Files {
        ranks,     ///< DIR/rank.N/stdout and stderr
        torchrun,  ///< DIR/RUN-ID_XXXXXXXX/attempt_N/LOCAL-RANK/stdout.log and stderr.log, behind a
                   ///< folder for each host if there are several
        deepspeed,  ///< DIR/TIME_rankN.log, both in one
    };
    /// Which of stdout (bit 0) and stderr (bit 1), by local rank, else `otherwise`.
    struct Streams {
        std::map<std::uint32_t, std::uint8_t> of_local_rank{};
        std::uint8_t otherwise = 0;
        std::uint8_t of(std::uint32_t local_rank) const {
            const auto found = of_local_rank.find(local_rank);
            return found == of_local_rank.end() ? otherwise : found->second;
        }
        bool any() const {
            return otherwise != 0 || std::ranges::any_of(of_local_rank, [](const auto& each) {
                       return each.second != 0;
                   });
        }
    };
    Files files = Files::ranks;
    Streams to_file{{}, 3};  ///< into files, if there are any
    Streams shown{{}, 3};    ///< on the console
    Streams prefixed{};      ///< there with `prefix` instead of the tag
    std::string prefix;      ///< "${role_name}", "${local_rank}" and "${rank}" in it are replaced
    std::vector<std::uint32_t> local_ranks{};  ///< --local-ranks-filter, already in `shown`
};

/// --wrap: a command by which the program of some ranks is run.
struct WrapOption {
    RankSet ranks{};                   ///< empty: all
    std::vector<std::string> words{};  ///< as a shell splits them, at least one
    std::string written{};             ///< as the user wrote it

    bool operator==(const WrapOption&) const = default;
};

/// Where something listens that the user asked for.
struct ListenAddress {
    std::string address;     ///< numeric
    std::uint16_t port = 0;  ///< 0: any free one

    bool operator==(const ListenAddress&) const = default;
};

/// --on-event: a line for a shell, run for each event of some kinds.
struct EventCommand {
    std::vector<std::string> events{};  ///< their names, at least one
    std::string line{};

    bool operator==(const EventCommand&) const = default;
};

/// How the job is shown to others than whoever has started it.
struct ShowOptions {
    std::string log_json{};                  ///< --log-json, a path; empty: none
    std::string report{};                    ///< --report, perhaps a pattern; empty: none
    std::vector<EventCommand> commands{};    ///< --on-event, in order
    std::optional<ListenAddress> metrics{};  ///< --metrics
    std::optional<ListenAddress> page{};     ///< --web
};

/// What is kept of the job for later, and how it outlives its terminal.
struct HistoryOptions {
    bool detach = false;  ///< --detach
    std::string name{};   ///< --name; empty: none
    bool off = false;     ///< --no-record

    // Not of flags.
    std::string folder{};               ///< of records; empty: there is none
    std::vector<std::string> typed{};   ///< the command line, behind `dtrun`
    std::vector<std::size_t> hidden{};  ///< words of it whose values are left out
    std::string typed_in{};             ///< the caller's directory
};

/// What becomes of log-ins to hosts, beyond the job.
struct WarmOptions {
    bool off = false;  ///< --no-warm: those that are kept are not used
    std::optional<std::chrono::milliseconds>
        keep{};  ///< --keep-warm: for later jobs; unset: none is
};

/// --tree-login: whether relays log in to the hosts behind them.
enum class TreeLogin {
    automatic,  ///< where they can, with keys that they have
    off,
    forward_agent  ///< as automatic, and with the keys of the caller's ssh-agent
};

/// How a daemon and a job of it are named on the command line.
struct DaemonArgs {
    std::string address;           ///< HOST[:PORT]; empty: $DTRUN_SERVE, else this machine
    std::string job;               ///< --job; empty: $DTRUN_JOB_NAME
    std::string secret_file;       ///< --secret-file; empty: $DTRUN_SECRET_FILE, else the default
    std::optional<int> secret_fd;  ///< --secret-fd
    bool encrypt = false;          ///< --encrypt
};

/// What --min-np and its like ask for: a job that goes on when hosts are lost, come or go.
struct ElasticOptions {
    std::optional<int> ranks_min{};  ///< --min-np; set where the job is elastic
    std::optional<int> ranks_max{};  ///< --max-np; unset: as many as there are slots
    Refill refill = Refill::now;     ///< --refill
    std::vector<int> allowed{};      ///< --allowed-np, ascending; empty: any number of ranks
    /// --elastic-timeout: how long the job may have fewer slots than ranks_min. 0: not at all
    std::chrono::milliseconds timeout{600'000};
    /// --host-discovery-script: a command that lists the hosts there are; empty: none
    std::string discovery_script{};
    std::chrono::milliseconds discovery_interval{
        1'000};              ///< --discovery-interval, between two runs
    int slots_per_host = 1;  ///< --slots-per-host, of hosts that are listed without a number
    int spares = 0;          ///< --spares: hosts that are kept ready without ranks
    /// --warn-time: how long ranks that are to start again are warned, if hosts come or go as planned; with
    /// --warn-signal by this signal, too.
    std::chrono::milliseconds warn_time{0};
    int warn_signal = 0;
    /// --standby: processes that are kept ready on each host; 0: one for each slot. Unset: none
    std::optional<int> standby{};
    std::vector<std::string> preload{};       ///< --preload: Python modules that these import
    std::optional<int> rank_failure_limit{};  ///< of ranks, while no host is lost; unset: any
    std::optional<int> reset_limit{};         ///< --reset-limit: worlds after the first; unset: any
    std::optional<int> failure_limit{};       ///< --failure-limit: ranks and hosts; unset: any
    /// --blacklist-cooldown-range: how long a lost host is left alone, at first and at most.
    std::chrono::milliseconds cooldown_min{10'000}, cooldown_max{300'000};
    /// Every world has whole hosts of so many ranks; 0: a host may have any number. Set by the plan where
    /// `shape` has counted hosts.
    int ranks_per_host = 0;
};

/// What `dtrun join` asks for besides.
struct JoinOptions {
    DaemonArgs daemon;
    std::optional<int> ranks_min;  ///< --min-np; unset: as many as the first member has
    std::optional<int> ranks_max;  ///< --max-np; unset: as ranks_min
    ElasticOptions
        limits;  ///< of these `allowed`, `timeout`, `reset_limit` and `rank_failure_limit`
    std::chrono::milliseconds last_call{2'000};        ///< --last-call
    std::chrono::milliseconds server_timeout{60'000};  ///< --server-timeout

    /// The same command runs on every node, and the one at the daemon's address is the daemon, too.
    bool by_hand = false;
    std::optional<bool> serves{};    ///< whether this is that one; unset: by the address
    std::optional<int> node_rank{};  ///< --node-rank: the place among the nodes
};

/// One of several programs, as in `-np 2 a : -np 1 b`: what stands between two ':'.
struct ProgramPart {
    std::vector<std::string> argv;
    std::optional<int> ranks{};              ///< its -np
    std::string hosts{};                     ///< its own -H; empty: those of the job
    std::string wdir{};                      ///< its own --wdir; empty: the job's
    std::vector<std::string> export_vars{};  ///< its own -x
    std::vector<std::pair<std::string, std::string>> assignments{};  ///< K=V before it
};

/// Which processors the ranks of a host get: --bind-to and its like.
struct BindingOptions {
    std::optional<BindTo> to{};          ///< unset: what the others imply, else none
    MapWithin by = MapWithin::slot;      ///< --map-by, of what a host has
    std::optional<int> cpus_per_rank{};  ///< --cpus-per-rank: cores
    std::string cpus{};                  ///< a list of processors to use, "0-3,8"; empty: all
    bool report = false;                 ///< --report-bindings
    bool may_overlap = false;            ///< where cores are too few, ranks share them
    int threads = 0;  ///< OMP_NUM_THREADS where nothing else says it; 0: an equal part

    bool operator==(const BindingOptions&) const = default;
};

/// Everything the user asked of one job. Plain data, checked one by one and for contradictions, but
/// not against the hosts: the world size is not known yet. It has a member for each flag; those that agents are told
/// as they are it has from JobSettings.
struct Options : JobSettings {
    using Variable = std::pair<std::string, std::string>;  ///< name and value

    // What runs.
    std::vector<std::string> program;  ///< argv, at least one word
    std::vector<ProgramPart> parts;  ///< if there are several programs, all; `program` is the first
    std::vector<Variable> assignments;  ///< K=V before the program, in order; checked names
    std::string wdir;                   ///< --wdir; empty: the caller's if it is there, else home

    // Where it runs.
    std::optional<int> world_size;  ///< -np, 1..kRanksMax; unset: every slot (1 without hosts)
    std::string hosts;              ///< -H, not parsed; empty if not given; never with `hostfile`
    std::string hostfile;           ///< --hostfile, a path or "-"; empty if not given
    std::string include;            ///< --include, DeepSpeed's grammar; never with `exclude`
    std::string exclude;            ///< --exclude
    HostShape shape;                ///< --nnodes, --nproc-per-node and their like
    MapBy map_by = MapBy::slot;     ///< --map-by, between hosts
    std::string rankfile;           ///< --rankfile, a path; empty if not given
    BindingOptions binding;
    bool oversubscribe = false;          ///< --oversubscribe
    PlanFormat plan = PlanFormat::none;  ///< --plan[=text|json]: print the map, start nothing
    bool show_plan = false;              ///< --display-map: print the map, and start

    // What the ranks find in their environment; environment.h makes it from these.
    std::vector<std::string> export_vars;   ///< -x "VAR" or "VAR=v", in order; checked names
    std::vector<std::string> env_files;     ///< --env-file, paths in order, not read
    bool no_env = false;                    ///< --no-env: nothing of the caller's environment
    std::vector<std::string> contracts;     ///< --contract, in order; checked names; empty: default
    std::optional<TorchStore> store_given;  ///< `torch_store` as written, if at all
    /// Ranks see all GPUs of their hosts, also where Slurm was asked for some of each task.
    bool sees_all_devices = false;
    bool mpirun = false;                    ///< --mpi mpirun: the site's own starts the ranks
    std::vector<std::string> mpi_args;      ///< --mpi-args, as a shell splits them; mpirun only
    std::vector<std::string> binding_args;  ///< --binding-args, instead of dtrun's own
    /// With several hosts the working directory comes first in PYTHONPATH, as with DeepSpeed.
    bool directory_in_pythonpath = false;
    std::vector<Variable>
        tuning_env;  ///< made by tuning flags, --config-file, --tcp, .deepspeed_env and
                     ///< --network-interfaces; each name once

    std::vector<WrapOption> wraps;  ///< --wrap, in order: the first is the outermost

    ShowOptions show;
    HistoryOptions history;

    // How hosts are reached.
    std::optional<Transport> transport{};  ///< --transport; none: what is right for a host
    int ssh_port = 0;                      ///< -p, 1..65535; 0: ssh's own choice
    std::string ssh_identity_file;         ///< -i; empty: ssh's own choice
    std::string ssh_command;  ///< --ssh-command, words as a shell splits them; empty: libssh
    WarmOptions warm;
    TreeLogin tree_login = TreeLogin::automatic;
    int fanout = 128;                   ///< --fanout: log-ins at once, from here
    bool accept_new_host_keys = false;  ///< --accept-new-host-keys; changed keys are never accepted
    /// --wait-for-hosts: from the start of dtrun, how long hosts that are not there yet are tried again. 0: not at
    /// all, as a host that nobody knows is most often misspelt.
    std::chrono::milliseconds wait_for_hosts{0};
    /// --start-timeout, else HOROVOD_START_TIMEOUT: from the start of dtrun until every rank runs.
    /// Unset: no limit of its own, so each host has its `connect_timeout` however many there are.
    std::optional<std::chrono::milliseconds> start_timeout;

    // What is shown.
    std::optional<Tag> tag;             ///< --tag; unset: horovod with several ranks, none with one
    bool timestamps = false;            ///< --timestamps: before the tag, taken on the rank's host
    Color color = Color::on_terminals;  ///< --color
    bool fold = false;                  ///< --fold: equal lines of several ranks become one
    /// --output-dir, for per-rank files, perhaps a pattern. Empty: none, or for torchrun's files a new one.
    std::string output_dir;
    std::string log;        ///< --log, a file for all lines, perhaps a pattern; empty: none
    Rotation log_rotation;  ///< --log-max and --log-keep, of these files
    /// How files of ranks are named and what of them is shown; torchrun's and deepspeed's forms.
    RankOutput rank_output;
    RankSet quiet_ranks;  ///< --quiet-ranks: not on the console
    RankSet only_ranks;   ///< --only-ranks: the only ones on the console; empty: all

    // How it ends.
    /// --timeout: from the start of dtrun until the job is ended. Unset: as long as it takes.
    std::optional<std::chrono::milliseconds> time_limit;
    bool keep_going = false;  ///< --keep-going: a failed rank does not end the others
    /// --on-rank-failure continue: the same for lost hosts, and whoever waits is left alone: the program
    /// recovers by itself. --min-np says how many ranks have to end well.
    bool recovers_itself = false;
    int ranks_to_end_well = 0;  ///< with it; 0: all
    /// --restart-delay: from a failure until ranks start again, at least. Where they fail at once again and again,
    /// it grows by itself.
    std::chrono::milliseconds restart_delay{0};
    /// --min-uptime: a rank that fails sooner is not worth a restart: it would fail again.
    std::chrono::milliseconds min_uptime{0};
    /// --init-timeout: how long ranks wait for others in the stores of their frameworks, in which
    /// they meet. Unset: as long as the frameworks themselves do.
    std::optional<std::chrono::milliseconds> init_timeout;

    std::vector<std::string> notes;  ///< for the user once it is known where ranks run, each a line

    /// The file that gets the error of the first rank that failed, as torchrun leaves it for
    /// torch's @record in its caller: the caller's TORCHELASTIC_ERROR_FILE. Empty: none.
    std::string error_file;

    std::string pid_file;  ///< --save_pid: holds dtrun's process id as long as the job runs

    std::optional<ElasticOptions> elastic;  ///< unset: the job has one world, or none

    std::optional<JoinOptions> join;  ///< dtrun join: ranks of a daemon's job, on this machine
};

}  // namespace dtrun::plan
