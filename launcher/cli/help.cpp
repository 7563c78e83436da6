// The text of `dtrun --help`.

#include "base/strings.h"
#include "base/text_layout.h"
#include "lab/plan/flags.h"
#include "launcher/cli/flags.h"

namespace dtrun::cli {

namespace {

constexpr std::string_view kIntroduction = R"(
Starts a training program on this machine or on many, gives each rank its place,
shows what they print and leaves nothing behind. Programs for Horovod, torch,
DeepSpeed or your own communicator run unmodified; horovodrun's flags work too.

Examples:
  dtrun -np 4 python train.py
      4 ranks on this machine
  dtrun -np 16 -H s1:4,s2:4,s3:4,s4:4 python train.py
      4 ranks on each of 4 hosts, over ssh
  dtrun --hostfile hosts.txt python train.py
      one rank for every slot of the hosts in a file
  sbatch -N4 --ntasks-per-node=4 --wrap 'dtrun python train.py'
      in a batch system hosts and ranks are its own
  dtrun -H s1:4,s2:4 --plan python train.py
      show which rank would run where, and start nothing
  dtrun -H s1:4,s2:4 -x NCCL_DEBUG=INFO --output-dir logs python train.py
      with a variable for every rank, and their output in files too
  dtrun -H s1:4,s2:4 OMP_NUM_THREADS=8 python train.py --epochs 3
      what follows the program belongs to the program

Options stand before the program. Long names may be shortened while they stay
unique; a value follows as the next word or after '='.

Other commands, each with a --help of its own:
  dtrun bench        how fast ranks talk to each other, by every library
  dtrun hosts        host lists of batch systems and files, in any format
  dtrun serve        a rendezvous daemon, for ranks that start by themselves
  dtrun join         start ranks here that belong to a job of such a daemon
  dtrun status       what a daemon does
  dtrun store        look into the store of a job, or of this rank's own
  dtrun torchrun     what torchrun would run, with its flags
  dtrun deepspeed    what deepspeed would run, with its flags
  dtrun contracts    sets of variables by which programs know their place
  dtrun help environment    what ranks find in their environment
)";

constexpr std::string_view kExitCodes = R"(
Exit code: 0 if every rank exits 0; else that of the first rank that failed,
128+n if signal n ended it; or dtrun's own:
  126                       program or --wdir cannot be used on some host
  127                       program not found on some host
  130                       Ctrl-C; 128+n for another signal n to dtrun
  200                       command line, hostfile or environment file
  201                       a host cannot be reached
  202                       a host's key, or ours, is refused
  203                       the agent cannot be copied, started or reach back
  204                       a host or its agent was lost while the job ran
  205                       --start-timeout
  206                       ranks waited for one that will not come, or
                            --init-timeout
  210                       dtrun itself failed
)";

constexpr std::size_t kMiddle = 28;  // where descriptions begin

constexpr std::pair<FlagGroup, std::string_view> kTitles[] = {
    {FlagGroup::hosts, "Ranks and hosts"},
    {FlagGroup::environment, "What ranks start with"},
    {FlagGroup::reaching, "Reaching the hosts"},
    {FlagGroup::output, "Output"},
    {FlagGroup::ending, "The end of the job"},
    {FlagGroup::other, "About dtrun"},
    {FlagGroup::horovod,
     "Horovod's settings (default: Horovod's own, or your HOROVOD_* variables)"},
};

/// Lines as they stand, for a manual page.
std::string roff(std::string_view lines) {
    std::string text;
    for (const std::string_view line : split(lines, '\n')) {
        // A dot or a quote that begins a line, and a backslash anywhere, would be orders to roff.
        if (line.starts_with('.') || line.starts_with('\'')) text += "\\&";
        for (const char c : line) text += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
        text += '\n';
    }
    return text;
}

std::string comma_separated(std::string_view names) {
    std::string text;
    for (const std::string_view name : split(names, ' '))
        text += (text.empty() ? "" : ", ") + std::string(name);
    return text;
}

std::string left_column(const Flag& flag) {
    const bool apart = flag.value() == Flag::Value::required || flag.value() == Flag::Value::choice;
    return comma_separated(flag.names) + (apart ? " " : "") + std::string(flag.metavar);
}

}  // namespace

/// One without help shares the row of the one before.
std::string flag_rows(const Flags& flags, FlagGroup group) {
    std::string text;
    for (auto flag = flags.begin(); flag != flags.end(); ++flag) {
        if (flag->group != group || flag->help.empty()) continue;
        std::string left = left_column(*flag);
        const auto next = flag + 1;
        if (next != flags.end() && next->help.empty() && next->refused.empty())
            left += ", " + left_column(*next);
        text += two_columns(left, flag->help, kMiddle);
    }
    return text;
}

std::string refusals(const Flags& flags) {
    std::string text;
    std::string_view reason;
    std::string names;
    const auto flush = [&] {
        if (!names.empty()) text += wrap(fmt::format("{}: {}.", names, reason), 2);
        names.clear();
    };
    for (const Flag& flag : flags) {
        if (flag.refused.empty()) continue;
        if (flag.refused != reason) flush();
        reason = flag.refused;
        names += (names.empty() ? "" : ", ") + comma_separated(flag.names);
    }
    flush();
    return text;
}

std::string sections(const Flags& flags) {
    std::string text;
    for (const auto& [group, title] : kTitles)
        if (const std::string rows = flag_rows(flags, group); !rows.empty())
            text += fmt::format("\n{}:\n{}", title, rows);
    return text;
}

std::string_view usage_line() {
    return "usage: dtrun [run] [options] [VAR=VALUE...] program [args...]";
}

std::string run_help() {
    return std::string(usage_line()) + "\n" + std::string(kIntroduction) + sections(run_flags()) +
           "\nRefused flags of horovodrun:\n" + refusals(run_flags()) + std::string(kExitCodes);
}

std::string man_page() {
    const std::string help = run_help();
    return ".TH DTRUN 1\n.SH NAME\ndtrun \\- start a program on many machines, with a rank for "
           "each\n"
           ".SH SYNOPSIS\n.B dtrun\n[run] [options] [VAR=VALUE...] program [args...]\n"
           ".SH DESCRIPTION\n.nf\n" +
           roff(std::string_view(help).substr(help.find('\n') + 1)) +
           ".fi\n.SH MEASURING: DTRUN BENCH\n.nf\n" + roff(lab::bench_help()) + ".fi\n";
}

}  // namespace dtrun::cli
