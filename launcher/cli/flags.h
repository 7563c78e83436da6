#pragma once
// What cli*.cpp share: the table of the flags of `dtrun run`.

#include "base/result.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/horovod_flags.h"
#include "launcher/fronts/deepspeed_words.h"
#include "launcher/fronts/torchrun_words.h"

#include <chrono>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::cli {

/// What the words read so far ask for.
struct Draft {
    plan::Options options;
    HorovodValues tuning;
    bool tcp = false;
    std::string config_file;
    CommandLine::Kind kind = CommandLine::Kind::run;  ///< another one ends the reading
    std::string_view hosts_flag = "-H";               ///< what messages call --hosts
    plan::DaemonWords daemon;                         ///< join, store, status
    plan::JoinOptions join;
    ServeOptions serve;
    StoreCommand store;
    HostsCommand hosts;
    lab::BenchCommand bench;
    fronts::TorchrunWords torchrun;
    fronts::DeepspeedWords deepspeed;
    bool mpi_asked = false;  ///< --mpi asks for MPI that dtrun offers
};

/// `native`: of the program whose front end it is; wins where a shortened name could be several,
/// and counts as not given where its value is empty.
enum class FlagGroup {
    native,
    daemon,
    hosts,
    environment,
    reaching,
    output,
    ending,
    other,
    training,
    horovod
};

/// One option: its names and what it does.
struct Flag {
    /// optional: only as --name=VALUE. choice: one of the words of `metavar` or nothing, so that
    /// it never takes the program for its value.
    enum class Value { none, required, optional, choice };

    std::string_view names;    ///< between blanks, with their dashes; '_' and '-' are the same
    std::string_view metavar;  ///< of the value; empty if it takes none, "[=X]" if optional,
                               ///< "[A|B]" for a choice
    FlagGroup group{};
    std::string_view help;
    /// Stores the value ("" if there is none); the error does not name the flag.
    std::function<Result<void>(Draft&, std::string_view value)> apply;
    std::string_view refused;   ///< why dtrun has no such flag; apply is empty then
    bool is_arguments = false;  ///< a value with blanks may begin with a dash

    Value value() const;
    std::string_view first_name() const { return names.substr(0, names.find(' ')); }
};

/// Time in seconds, fractions allowed; rounded to a millisecond.
Result<std::chrono::milliseconds> parse_seconds(std::string_view text,
                                                std::chrono::milliseconds min,
                                                std::chrono::milliseconds max);
/// Errc: invalid_input (no whole number, or out of range)
Result<int> whole_number(std::string_view text, int min, int max);
inline constexpr std::chrono::milliseconds kTimeoutMin{1};
inline constexpr std::chrono::milliseconds kTimeoutMax = std::chrono::hours(24);

using Flags = std::vector<Flag>;

/// Flags of each sub-command, in the order of its --help.
const Flags& run_flags();
const Flags& join_flags();
const Flags& serve_flags();
const Flags& store_flags();
const Flags& status_flags();
const Flags& hosts_flags();

/// Appends those of run_flags() that have these first names, in the order of run_flags().
void add_of_run(Flags& flags, const std::vector<std::string_view>& names);

/// Appends those that every front end of another launcher has, and these others.
void add_common(Flags& flags, std::initializer_list<std::string_view> others);

/// An option as the user wrote it.
struct FoundFlag {
    const Flag* flag = nullptr;
    std::string_view name;                     ///< whole, for messages
    std::optional<std::string_view> attached;  ///< value in the same word
};

/// Finds the flag that `word` (which begins with '-') means.
/// \return invalid_input: unknown ("did you mean"), or short for several (names them)
Result<FoundFlag> find_flag(const Flags& flags, std::string_view word);

/// Reads options from the left; stops behind "--", at the first word that is none, or at --help.
class OptionReader {
public:
    OptionReader(std::span<const std::string> words, const Flags& flags)
        : words_(words), flags_(flags) {}

    Result<void> read(Draft& draft);
    std::size_t at() const { return at_; }  ///< of the first word behind the options
    bool ended() const { return ended_; }   ///< by "--"

private:
    Result<void> option(Draft& draft);
    Result<std::string_view> option_value(const FoundFlag& found);
    Result<std::string_view> chosen_word(const FoundFlag& found);

    std::span<const std::string> words_;
    const Flags& flags_;
    std::size_t at_ = 0;
    bool ended_ = false;
};

/// The user's own address and port of torch's store (empty, unset: dtrun's), which rank 0 then
/// serves.
void set_master(plan::Options& options, const std::string& address, std::optional<int> port);
/// What a draft of a job to run amounts to: looks for contradictions, reads --config-file.
Result<CommandLine> finish_run(Draft draft, plan::EnvironmentView environment);
/// The text that --help and its like ask for.
CommandLine text_command(CommandLine::Kind kind, std::string (*help)());
/// "python3", or "python" where PATH has only that.
std::string python_command(plan::EnvironmentView environment);

/// One row for each flag of a group, for --help.
std::string flag_rows(const Flags& flags, FlagGroup group);

/// `dtrun --help` and `dtrun COMMAND --help`, in at most kHelpColumns columns.
std::string run_help();
std::string join_help();
std::string serve_help();
std::string store_help();
std::string status_help();
std::string hosts_help();
/// Flags that are refused, each reason once.
std::string refusals(const Flags& flags);
/// The groups of run_flags() that `flags` has some of, each under its title.
std::string sections(const Flags& flags);
/// The same as a manual page, in roff: `dtrun help man`.
std::string man_page();
std::string_view usage_line();

}  // namespace dtrun::cli
