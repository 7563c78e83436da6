// The texts of `dtrun join --help` and of the other commands around a daemon.

#include "launcher/cli/flags.h"

namespace dtrun::cli {
namespace {

constexpr std::string_view kJoin =
    R"(usage: dtrun join [HOST[:PORT]] --job NAME [options] [VAR=VALUE...] program...

Starts ranks on this machine that belong to a job of `dtrun serve`. The job
begins when enough ranks have come together, from whatever machines, and ends
when they have ended. With --max-np above --min-np it is elastic: when a machine
is lost or another one comes, all ranks are ended with SIGTERM and started again
in a new generation, with new numbers and an empty store.

Without HOST the daemon is that of DTRUN_SERVE, else one on this machine.

Examples:
  dtrun join head:29400 --job train -np 4 --min-np 16 -- python train.py
      4 of 16 ranks; the same command on three more machines completes the job
  dtrun join head --job train -np 4 --min-np 8 --max-np 32 -- python train.py
      between 8 and 32 ranks, as machines come and go
)";

constexpr std::string_view kServe = R"(usage: dtrun serve [options]

The rendezvous daemon alone: brings together ranks that `dtrun join`, or
programs with dtrun's library, start wherever they like; many jobs at once.
Whoever knows its secret may use it; a missing ~/.config/dtrun/secret is made.

With --state everything that was acknowledged outlives the daemon: killed and
started again, it goes on with its jobs, and ranks notice nothing. systemd may
start it (Type=notify), with a socket of its own too.

Examples:
  dtrun serve
  dtrun serve --listen 10.0.0.1:29400 --state /var/lib/dtrun

SIGTERM and Ctrl-C end it in order: without --state its jobs end too.
)";

constexpr std::string_view kStore = R"(usage: dtrun store get|set|add|wait|watch|ls|rm [options] ...

Looks into the store of a job of `dtrun serve`; inside a rank, of its own job.
  get KEY                   the value
  set KEY VALUE             VALUE may be -, for standard input
  add KEY NUMBER            the sum; a missing key counts as 0
  wait KEY...               until all exist
  watch KEY                 the value whenever it changes, until Ctrl-C
  ls [PREFIX]               keys, one on a line
  rm KEY
What begins with a dash stands behind "--".

Exit code: 0; 1 if the key is not there, or not in time; 200 wrong words;
201 the daemon cannot be reached; 202 the secret is wrong.
)";

constexpr std::string_view kStatus = R"(usage: dtrun status [HOST[:PORT]] [options]

What `dtrun serve` does: its jobs, their members and how far their ranks are.
)";

std::string help_of(std::string_view text, const Flags& flags) {
    constexpr std::pair<FlagGroup, std::string_view> kTitles[] = {
        {FlagGroup::daemon, "Options"},     {FlagGroup::environment, "What ranks start with"},
        {FlagGroup::reaching, "Beginning"}, {FlagGroup::output, "Output"},
        {FlagGroup::ending, "The end"},     {FlagGroup::other, "About dtrun"},
    };
    std::string help(text);
    for (const auto& [group, title] : kTitles)
        if (const std::string rows = flag_rows(flags, group); !rows.empty())
            help += fmt::format("\n{}:\n{}", title, rows);
    return help;
}

}  // namespace

std::string join_help() {
    return help_of(kJoin, join_flags());
}

std::string serve_help() {
    return help_of(kServe, serve_flags());
}

std::string store_help() {
    return help_of(kStore, store_flags());
}

std::string status_help() {
    return help_of(kStatus, status_flags());
}

}  // namespace dtrun::cli
