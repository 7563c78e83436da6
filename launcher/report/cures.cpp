#include "launcher/report/cures.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "contracts/table.h"

#include <fmt/format.h>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <vector>

namespace dtrun::report {
namespace {

constexpr std::size_t kWordBytesMax = 200;
constexpr int kShellSignalBase = 128;  // a shell's exit code for a command that a signal ended

/// A rank and the text that stands for '*' in the sign of a row, perhaps empty.
struct Case {
    const FailedRank& rank;
    const plan::JobSpec& spec;
    std::string word{};
    std::string_view line{};  ///< that has the sign
    std::size_t after = 0;    ///< index of the line after it

    const std::vector<std::string>& argv() const { return spec.argv_of(rank.slot); }
    /// As the user wrote it.
    std::string program() const { return argv().empty() ? "" : argv().front(); }
    std::string program_name() const {
        return std::filesystem::path(program()).filename().string();
    }
    const plan::JobHost& host() const {
        return spec.hosts[plan::host_of(spec.placement.ranks[std::to_underlying(rank.slot)])];
    }
    const std::vector<plan::Options::Variable>& env() const { return spec.env_of(host()); }
    bool is_python() const { return program_name().starts_with("python"); }
    bool names(std::string_view text) const {
        return std::ranges::any_of(rank.lines,
                                   [text](const std::string& line) { return line.contains(text); });
    }
    /// Whether the caller's environment, or the command line, sets this variable for the rank.
    bool has_variable(std::string_view name) const {
        const auto is_it = [name](const plan::Options::Variable& each) {
            return each.first == name;
        };
        const bool is_of_program =
            !spec.programs.empty() &&
            std::ranges::any_of(spec.programs[spec.program_of(rank.slot)].env, is_it);
        return is_of_program || std::ranges::any_of(env(), is_it);
    }
    bool was_ended_by(int signal) const {
        return rank.exited.signal == signal ||
               (rank.exited.signal == 0 && rank.exited.code == kShellSignalBase + signal);
    }
};

bool always(const Case&) {
    return true;
}

/// "ValueError: …", as the last line of a traceback.
bool is_exception(std::string_view line) {
    if (line.starts_with("[rank")) line.remove_prefix(std::min(line.find(' ') + 1, line.size()));
    const std::string_view name = line.substr(0, line.find(':'));
    return (name.ends_with("Error") || name.ends_with("Exception")) && !name.contains(' ');
}

/// What was caught or warned of is not what has ended the rank: another exception follows, and not because of it.
bool is_final(const Case& c) {
    for (const std::string& line : c.rank.lines.subspan(c.after)) {
        if (line.contains("The above exception was") ||
            line.contains("During handling of the above"))
            return true;
        if (is_exception(line)) return false;
    }
    return true;
}

/// Python itself says so, and not a warning.
bool is_import_error(const Case& c) {
    const std::string_view before = c.line.substr(0, c.line.find("No module named"));
    return is_final(c) && (is_exception(c.line) || before.contains("python"));
}

/// The module that Python has not found, or a part of it.
bool is_of_module(const Case& c, std::string_view module) {
    return c.word == module || (c.word.starts_with(module) && c.word[module.size()] == '.');
}

bool is_horovod_for_others(const Case& c) {
    for (const char* const framework : {"tensorflow", "keras", "mxnet", "spark", "ray"})
        if (c.names(fmt::format("horovod.{}", framework))) return true;
    return false;
}

bool is_other_horovod(const Case& c) {
    return is_import_error(c) && is_of_module(c, "horovod") && is_horovod_for_others(c);
}

bool is_horovod(const Case& c) {
    return is_import_error(c) && is_of_module(c, "horovod") && !c.spec.options.horovod_shim;
}

/// A part of dtrun's package that is there in truth.
bool is_dtrun_shadowed(const Case& c) {
    for (const char* const part : {"dtrun.aio", "dtrun.collectives", "dtrun.torch"})
        if (is_of_module(c, part)) return is_import_error(c);
    return false;
}

bool is_dtrun(const Case& c) {
    return c.word == "dtrun" && is_import_error(c);
}

bool is_mpi4py(const Case& c) {
    return is_of_module(c, "mpi4py") && is_import_error(c);
}

/// With the shim a missing part of Horovod is missing everywhere, and only Python's own names are names of modules.
bool is_module(const Case& c) {
    return is_import_error(c) && !c.word.empty() && !c.word.contains(' ') &&
           !is_of_module(c, "horovod") && !is_of_module(c, "dtrun");
}

/// The file that is missing is this word of the command, perhaps with the directory before it, which may be a host's own.
bool is_missing(const Case& c, const std::string& word) {
    return !word.empty() && (c.word == word || c.word.ends_with("/" + word));
}

bool is_of_command(const Case& c) {
    return std::ranges::any_of(c.argv(),
                               [&c](const std::string& word) { return is_missing(c, word); });
}

bool is_program_elsewhere(const Case& c) {
    return is_of_command(c) && c.host().transport != plan::Transport::local;
}

/// On no machine that is known of: who has mistyped a name need not copy anything.
bool is_program_nowhere(const Case& c) {
    const auto lies_here = [&c](const std::string& word) {
        std::error_code none;
        return is_missing(c, word) &&
               std::filesystem::exists(std::filesystem::path(c.spec.directory) / word, none);
    };
    return is_program_elsewhere(c) && std::ranges::none_of(c.argv(), lies_here);
}

bool is_program_here(const Case& c) {
    return is_of_command(c) && !is_program_elsewhere(c);
}

bool exits_126(const Case& c) {
    return c.rank.exited.code == 126;
}

bool exits_127(const Case& c) {
    return c.rank.exited.code == 127;
}

bool is_libdtrun(const Case& c) {
    return c.word.starts_with("libdtrun");
}

bool is_libmpi(const Case& c) {
    return c.word.starts_with("libmpi");
}

bool is_libc(const Case& c) {
    return c.word.starts_with("GLIBC_");
}

bool is_libstdcxx(const Case& c) {
    return c.word.starts_with("GLIBCXX_") || c.word.starts_with("CXXABI_");
}

bool has(const contracts::Contract& contract, std::string_view variable) {
    return std::ranges::find(contract.variables, variable, &contracts::ContractVariable::name) !=
           contract.variables.end();
}

/// The contract that would set this variable; empty: none, or the rank has one that may.
std::string_view contract_for(const Case& c) {
    std::string_view found;
    for (const contracts::Contract& contract : contracts::all_contracts()) {
        if (!has(contract, c.word)) continue;
        const bool is_there =
            std::ranges::find(c.spec.contracts, contract.name) != c.spec.contracts.end();
        // "mpi" has names that only programs which are linked with that MPI get.
        if (is_there && contract.name != "mpi") return {};
        if (!is_there && found.empty()) found = contract.name;
    }
    return found;
}

bool has_contract(const Case& c) {
    return is_final(c) && !contract_for(c).empty();
}

bool is_node_rank(const Case& c) {
    return c.word == "NODE_RANK";
}

/// Only `dtrun deepspeed` puts the directory into PYTHONPATH; torchrun's users write such a macro themselves.
bool passes_local_rank(const Case& c) {
    return c.spec.options.rank_macros && c.spec.options.directory_in_pythonpath;
}

/// With TORCHELASTIC_USE_AGENT_STORE torch takes any address for one where the store is served already, also one
/// that a program or a launcher within it has chosen.
bool is_store_elsewhere(const Case& c) {
    return c.spec.options.torch_store != TorchStore::rank0 && c.spec.placement.ranks.size() > 1;
}

/// The port that is taken is the one that the user has set.
bool has_master_port(const Case& c) {
    const auto port = std::ranges::find(c.env(), "MASTER_PORT", &plan::Options::Variable::first);
    return is_final(c) && port != c.env().end() && c.line.contains(port->second);
}

/// Git logs in as well, and has to.
bool is_own_ssh(const Case& c) {
    return !c.names("git@") && !c.names("remote repository");
}

bool is_memory(const Case& c) {
    return is_final(c) && !c.line.contains("OutOfMemoryError");
}

bool has_no_nccl_debug(const Case& c) {
    return !c.has_variable("NCCL_DEBUG");
}

bool may_choose_interface(const Case& c) {
    return c.spec.hosts.size() > 1 && c.spec.options.network_interfaces.empty();
}

bool is_other_launcher(const Case& c) {
    constexpr std::string_view kLaunchers[] = {"mpirun",  "mpiexec",    "orterun",
                                               "prterun", "horovodrun", "srun"};
    return c.spec.placement.ranks.size() > 1 &&
           std::ranges::find(kLaunchers, c.program_name()) != std::end(kLaunchers);
}

bool is_out_of_memory(const Case& c) {
    return c.rank.exited.out_of_memory;
}

bool is_killed_by_unknown(const Case& c) {
    const Exited& exited = c.rank.exited;
    return exited.signal == SIGKILL && exited.sent_signal == 0 && !exited.hung &&
           !c.rank.is_explained;
}

bool is_illegal_instruction(const Case& c) {
    return c.was_ended_by(SIGILL);
}

bool is_bus_error(const Case& c) {
    return c.was_ended_by(SIGBUS);
}

/// Python's faulthandler says "Fatal Python error" before it says where.
bool is_python_crash(const Case& c) {
    return c.was_ended_by(SIGSEGV) && c.is_python() && !c.names("Fatal Python error") &&
           !c.has_variable("PYTHONFAULTHANDLER");
}

struct Row {
    std::string_view name;
    std::string_view signs;
    bool (*holds)(const Case&);
    std::string_view text;
};

constexpr Row kRows[] = {
#define DTRUN_CURE(name, seen, signs, holds, text) {#name, signs, holds, text},
#include "launcher/report/cures.def"
};

/// The least text that '*' of `sign` can be in `line`; nothing: the sign is not there.
std::optional<std::string_view> match_one(std::string_view line, std::string_view sign) {
    const std::size_t star = sign.find('*');
    const std::string_view before = sign.substr(0, star);
    const std::size_t first = line.find(before);
    if (first == std::string_view::npos) return {};
    if (star == std::string_view::npos) return std::string_view();
    const std::string_view after = sign.substr(star + 1);
    const std::size_t end = after.empty() ? line.size() : line.find(after, first + before.size());
    if (end == std::string_view::npos) return {};
    const std::size_t begin = line.rfind(before, end - before.size()) + before.size();
    return line.substr(begin, end - begin);
}

/// A name or a path out of what a rank has written: its first line up to ';', without quotes.
std::string word_of(std::string_view text) {
    text = trim(text.substr(0, text.find(';')));
    while (!text.empty() && std::string_view("'\"`").contains(text.front())) text.remove_prefix(1);
    while (!text.empty() && std::string_view("'\"`").contains(text.back())) text.remove_suffix(1);
    return std::string(text.substr(0, kWordBytesMax));
}

/// What the user has typed behind dtrun's own words: of a front end it is the script.
std::string typed_program(const Case& c) {
    const plan::Options& options = c.spec.options;
    const bool is_front_end = options.rank_output.files == plan::RankOutput::Files::torchrun ||
                              options.directory_in_pythonpath;
    return is_front_end ? "the script" : c.program();
}

std::string text_of(const Row& row, const Case& c) {
    const plan::JobHost& host = c.host();
    return fmt::format(
        fmt::runtime(row.text), fmt::arg("word", c.word), fmt::arg("host", host.host.name),
        fmt::arg("python", c.is_python() ? c.program() : "Python"),
        fmt::arg("program", typed_program(c)), fmt::arg("ranks", plural(host.ranks.size(), "rank")),
        fmt::arg("directory", c.spec.directory), fmt::arg("contract", contract_for(c)));
}

/// \param after  index of the line after that of the rank which is looked at; 0: only how it has ended
std::optional<Cure> cure_for(std::size_t after, const FailedRank& rank, const plan::JobSpec& spec) {
    const std::string_view line = after > 0 ? rank.lines[after - 1] : std::string_view();
    for (const Row& row : kRows) {
        if (row.signs.empty() != line.empty()) continue;
        for (const std::string_view sign : split(row.signs, '|')) {
            const auto word = match_one(line, sign);
            if (!word) continue;
            const Case found{rank, spec, word_of(*word), line, after};
            if (row.holds(found)) return Cure{row.name, text_of(row, found), std::string(line)};
        }
    }
    return {};
}

}  // namespace

std::optional<Cure> find_cure(const FailedRank& rank, const plan::JobSpec& spec) {
    for (std::size_t after = rank.lines.size(); after > 0; --after)
        if (!rank.lines[after - 1].empty())
            if (auto cure = cure_for(after, rank, spec)) return cure;
    return cure_for(0, rank, spec);
}

}  // namespace dtrun::report
