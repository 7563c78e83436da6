#include "launcher/commands/contracts_command.h"

#include "base/suggest.h"
#include "base/text_layout.h"
#include "contracts/table.h"
#include "launcher/cli/command.h"

#include <fmt/format.h>

namespace dtrun::commands {
namespace {

constexpr std::size_t kIndent = 4;
constexpr std::size_t kMiddle = 22;  // where the overview's texts begin

constexpr std::string_view kContractsIntroduction = R"(
A contract is a set of variables from which one kind of program learns its rank
and how to meet the others. Ranks get the default contracts (marked *), which do
not contradict each other. --contract NAME,... adds others; --contract
none,NAME,... starts from dtrun's own alone.
)";

constexpr std::string_view kNone = R"(none
  No contract, but a word of --contract: without the default set.
  `--contract none` leaves ranks dtrun's own variables, those of "dtrun", alone;
  `--contract none,torch` adds torch's to them.
)";

constexpr std::string_view kEnd = R"(
dtrun contracts NAME   what it sets, and why
dtrun contracts all    the same of every contract
)";

std::string overview() {
    std::string text(kContractsIntroduction.substr(1));
    text += '\n';
    for (const contracts::Contract& contract : contracts::all_contracts()) {
        const std::string left =
            fmt::format("{} {}", contract.by_default ? '*' : ' ', contract.name);
        text += two_columns(left, contract.what, kMiddle);
    }
    return text + std::string(kEnd);
}

std::string described(const contracts::Contract& contract) {
    std::string text = fmt::format("{}\n", contract.name);
    text += wrap(fmt::format("For {}.", contract.what), 2);
    text += wrap(contract.why, 2);
    for (const std::string_view added : contract.adds)
        text += fmt::format("  By name it brings \"{}\" with it.\n", added);
    if (!contract.variables.empty()) text += "\n";
    for (const contracts::ContractVariable& variable : contract.variables) {
        const bool own = variable.kind == contracts::ContractVariable::Kind::fallback;
        text += fmt::format("  {}{}\n", variable.name, own ? "  (the user's own value stays)" : "");
        text += wrap(variable.what, 2 + kIndent);
    }
    return text;
}

/// \param name  empty: all of them
Result<std::string> contracts_text(std::string_view name) {
    if (name.empty()) return overview();
    if (name == "all") {
        std::string text;
        for (const contracts::Contract& contract : contracts::all_contracts())
            text += (text.empty() ? "" : "\n") + described(contract);
        return text;
    }
    if (name == "none") return std::string(kNone);
    if (const contracts::Contract* const contract = contracts::find_contract(name);
        contract != nullptr)
        return described(*contract);
    std::vector<std::string> names{"all", "none"};
    for (const contracts::Contract& contract : contracts::all_contracts())
        names.emplace_back(contract.name);
    return fail(Errc::invalid_input, "there is no contract \"{}\"{}; `dtrun contracts` lists them",
                name, did_you_mean(name, names));
}

}  // namespace

Result<std::string> parse_contracts(cli::Words words) {
    if (words.size() > 1) return fail(Errc::invalid_input, "usage: dtrun contracts [NAME]");
    const bool all = words.empty() || words[0] == "--help" || words[0] == "-h";
    return contracts_text(all ? "" : words[0]);
}

int run_contracts(cli::Words words, plan::EnvironmentView) {
    const auto text = parse_contracts(words);
    return text ? cli::print(*text) : cli::complain(text.error());
}

std::string contracts_help() {
    return overview();
}

}  // namespace dtrun::commands
