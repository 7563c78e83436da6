#pragma once
// The engine of every command line: tables of flags, and what reads words by them. It knows no
// command; `dtrun run` is in run.h, and other commands have their tables beside them.

#include "base/result.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::cli {

/// Words of a command line; their strings outlive what is read of them.
using Words = std::span<const std::string>;

/// Under which title of --help a flag stands.
/// `native`: a flag of the launcher whose front end the command is. Its empty value counts as not
/// given.
enum class FlagGroup {
    native,
    daemon,
    hosts,
    binding,
    environment,
    reaching,
    output,
    ending,
    elastic,
    look,
    publishing,
    other,
    training,
    horovod,
    foreign  ///< a word of another launcher; not in --help
};

/// Commands that take flags of `dtrun run`.
enum class FlagScope : std::uint8_t {
    join = 1,
    torchrun = 2,
    deepspeed = 4,
    frontends = torchrun | deepspeed,
    bench = 8,
    doctor = 16
};

class FlagScopes {
public:
    constexpr FlagScopes(std::initializer_list<FlagScope> scopes) {
        for (const FlagScope scope : scopes) bits_ |= static_cast<std::uint8_t>(scope);
    }
    constexpr bool has(FlagScope scope) const {
        return (bits_ & static_cast<std::uint8_t>(scope)) != 0;
    }

private:
    std::uint8_t bits_ = 0;
};

/// Everything that is said of one flag, but for what it does.
struct Flag {
    /// optional: only as --name=VALUE. choice: one of the words of `metavar` or nothing, so that
    /// it never takes the program for its value.
    enum class Value { none, required, optional, choice };

    std::string_view names;   ///< between blanks, with their dashes; '_' and '-' are the same
    std::string_view also{};  ///< more names, which other launchers have for it; not in --help
    /// The value's name: empty if it takes none, "[=X]" if it is optional, "[A|B]" for a choice,
    /// "A B" if it is two words.
    std::string_view metavar{};
    /// "A|B": what the value may be, for completion, where `metavar` does not list it.
    std::string_view words{};
    FlagGroup group{};
    FlagScopes in{};            ///< other commands that take this flag of `dtrun run`
    bool needs_agents = false;  ///< only dtrun's own agents can do it, so --mpi mpirun refuses it
    bool is_arguments = false;  ///< a value with blanks may begin with a dash
    bool adds_up = false;       ///< given twice, both count
    bool of_program = false;    ///< may stand behind a ':', for one of several programs
    /// Its value is a variable and what that is set to, which may be a secret: messages leave it out.
    bool sets_variable = false;
    bool common = false;  ///< what a newcomer needs: in --help
    /// The `names` that may be abbreviated, since another launcher parses them by Python's
    /// argparse, where of two names that disagree the last counts. In the groups `native` and `horovod` all names
    /// are of this kind, but for those of `dtrun mpirun`.
    std::string_view argparse{};
    /// First names of flags of the same table that cannot be given with this one.
    std::string_view excludes{};
    /// What to say besides where two of its names are given with different values, which is refused.
    std::string_view twice{};
    std::string_view refused{};  ///< why dtrun has no such flag; it does nothing then
    std::string_view front{};    ///< refused: the command of dtrun that takes it, with these words
    std::string_view help{};     ///< empty: the flag shares the line of the one before

    Value value() const;
    /// Whether the value is a path, in which "~/" means the home on this machine, as in a shell: none replaces it
    /// behind a '=', and a configuration has none.
    bool is_path() const { return metavar == "FILE" || metavar == "DIR"; }
    std::string_view first_name() const { return names.substr(0, names.find(' ')); }
};

/// A text that the user may ask for in place of what a command does.
enum class Ask { nothing, help, version, check_build };

/// A flag that was given: its index in the table, and which of its names was meant.
struct GivenFlag {
    std::size_t row = 0;
    std::string name;
    std::string value{};  ///< as messages may show it
};

/// What words that are read become; each command derives a type with members of its own.
struct ParsedArgs {
    Ask asked = Ask::nothing;  ///< anything else ends the reading
    std::vector<GivenFlag> given;
    std::vector<std::string> warnings;  ///< for standard error, one line each, without '\n'
};

/// Stores the value of a flag ("" if it has none); the error does not name the flag.
template <class D>
using Setter = std::function<Result<void>(D& parsed, std::string_view value)>;

template <class D>
struct Row {
    Flag flag;
    Setter<D> set{};  ///< empty if the flag is refused
};
template <class D>
using Rows = std::vector<Row<D>>;

/// The flags of one command, in the order of its --help. \tparam D  derived from ParsedArgs
template <class D>
class FlagTable {
public:
    using Parsed = D;

    /// \param command  as it is typed, for messages: "dtrun hosts"
    FlagTable(std::string_view command, std::initializer_list<Rows<D>> parts) : command_(command) {
        for (const Rows<D>& rows : parts)
            for (const Row<D>& row : rows) add(row);
    }

    void add(Row<D> row) {
        flags_.push_back(row.flag);
        setters_.push_back(std::move(row.set));
    }

    std::string_view command() const { return command_; }
    std::span<const Flag> flags() const { return flags_; }
    const Setter<D>& setter(std::size_t row) const { return setters_[row]; }

    Rows<D> rows() const {
        Rows<D> rows;
        for (std::size_t i = 0; i < flags_.size(); ++i) rows.push_back({flags_[i], setters_[i]});
        return rows;
    }

    /// The flags that are in `scope`, by their own names, none of which may be abbreviated there.
    Rows<D> in_scope(FlagScope scope) const {
        Rows<D> taken = rows();
        std::erase_if(taken, [scope](const Row<D>& row) { return !row.flag.in.has(scope); });
        for (Row<D>& row : taken) row.flag.argparse = row.flag.also = {};
        return taken;
    }

private:
    std::string_view command_;
    std::vector<Flag> flags_;
    std::vector<Setter<D>> setters_;
};

/// Rows of a table whose arguments are the base of D.
template <class D, class Base>
Rows<D> rows_for(const Rows<Base>& rows) {
    Rows<D> converted;
    for (const Row<Base>& row : rows) converted.push_back({row.flag, row.set});
    return converted;
}

/// An option as it stands on the command line.
struct FoundFlag {
    std::size_t row = 0;
    std::string_view name;  ///< whole, for messages
    std::string value;
};

/// The value of a flag as messages may show it: all of it, but of a variable the name: "HF_TOKEN=...".
std::string shown_value(const Flag& flag, std::string_view value);

/// Reads options from the left; stops behind "--", or at the first word that is none.
class OptionReader {
public:
    OptionReader(Words words, std::span<const Flag> flags, std::string_view command)
        : words_(words), flags_(flags), command_(command) {}

    /// The next option; nothing at the end of the options. One that requires a value and has an
    /// empty one is skipped where that counts as not given.
    /// Errc: invalid_input
    Result<std::optional<FoundFlag>> next();
    Words rest() const { return words_.subspan(at_); }
    bool ended() const { return ended_; }  ///< by "--"

private:
    struct Named;
    Result<Named> find(std::string_view word) const;
    std::unexpected<Error> refused(const Flag& flag, std::string_view name) const;
    Result<std::string_view> value_of(const Named& named);
    Result<std::string> whole_value_of(const Named& named);
    Result<std::string_view> chosen_word(const Named& named);

    Words words_;
    std::span<const Flag> flags_;
    std::string_view command_;
    std::size_t at_ = 0;
    bool ended_ = false;
};

/// Adds a warning where two names of one flag have different values and the launcher whose names these are takes the
/// last. By one name the last value counts, as for whoever adds a word to an alias.
/// Errc: invalid_input, if two of the given flags exclude each other, or two other names of one disagree
Result<void> check_exclusions(std::span<const Flag> flags, ParsedArgs& parsed);

/// The error of an option whose value its setter does not take; of a value whose characters are none of the
/// keyboard's, with what to write.
Error not_taken(const Error& why, std::string_view name, std::string_view value);

/// What follows the options.
struct Rest {
    Words words;
    bool ended = false;  ///< "--" ended the options
};

/// Reads the options at the begin of `words` into `parsed`, up to one that asks for a text.
///
/// Names begin with one dash or two if they are whole, and contain '_' for '-'; a value is the next
/// word or follows '='. Given twice by one name: what the setter makes of it, usually the last value counts.
/// Errc: invalid_input, and those of setters
template <class D>
Result<Rest> read_options(const FlagTable<D>& table, Words words, D& parsed) {
    OptionReader reader(words, table.flags(), table.command());
    while (parsed.asked == Ask::nothing) {
        const auto found = reader.next();
        if (!found) return std::unexpected(found.error());
        if (!*found) break;
        const auto& [row, name, value] = **found;
        if (const auto done = table.setter(row)(parsed, value); !done)
            return std::unexpected(not_taken(done.error(), name, value));
        parsed.given.push_back({row, std::string(name), shown_value(table.flags()[row], value)});
    }
    if (parsed.asked == Ask::nothing)
        if (const auto done = check_exclusions(table.flags(), parsed); !done)
            return std::unexpected(done.error());
    return Rest{reader.rest(), reader.ended()};
}

/// The flag that has this name, with its dashes, among its own or those that it has for others; nullptr: none.
const Flag* find_flag(std::span<const Flag> flags, std::string_view name);
/// Whether a word is an option; "-" and "" are none.
bool is_option(std::string_view word);
/// What stands behind a dash that is none of the keyboard's; nothing: the word begins with none.
std::optional<std::string_view> behind_long_dash(std::string_view word);
/// Errc: invalid_input (an option whose dash is none of the keyboard's)
Result<void> check_dash(std::string_view word, std::span<const Flag> flags);

/// Time in seconds, fractions allowed; rounded to a millisecond.
Result<std::chrono::milliseconds> parse_seconds(std::string_view text,
                                                std::chrono::milliseconds min,
                                                std::chrono::milliseconds max);
/// The same, also "10m" or "2h"; whole seconds at least.
Result<std::chrono::milliseconds> parse_time_span(std::string_view text,
                                                  std::chrono::milliseconds max);
/// Errc: invalid_input (no whole number, or out of range)
Result<int> whole_number(std::string_view text, int min, int max);
/// "4", "64K", "16M" or "1G", from 1 to `max`. Errc: invalid_input
Result<std::uint64_t> parse_bytes(std::string_view text, std::uint64_t max);
/// "USR1", "SIGUSR1" or a number. Errc: invalid_input (none that a program can take)
Result<int> parse_signal(std::string_view text);
inline constexpr std::chrono::milliseconds kTimeoutMin{1};
inline constexpr std::chrono::milliseconds kTimeoutMax = std::chrono::hours(24);

}  // namespace dtrun::cli
