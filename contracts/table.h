#pragma once

#include "base/result.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::contracts {

/// One variable of a contract.
struct ContractVariable {
    enum class Kind : std::uint8_t {
        fixed,     ///< dtrun's word: no other value of it reaches a rank
        fallback,  ///< set only where the user has not set it
    };
    std::string_view name;
    Kind kind = Kind::fixed;
    std::string_view what;  ///< its value, and why where that is not plain
};

/// The variables by which one kind of program knows its place.
struct Contract {
    std::string_view name;
    std::string_view what;  ///< programs that read it
    std::string_view why;   ///< why it is in the default set, or why it is not
    bool by_default = false;
    bool needs_nodes = false;     ///< reads Assign::nodes: addresses and free ports of every host
    std::uint32_t ranks_min = 1;  ///< that the job must have
    std::span<const std::string_view> adds{};  ///< contracts that naming this one brings along
    std::span<const ContractVariable> variables{};
};

/// All of them, in the order in which they are shown. The table is the whole truth: the agent sets
/// no variable that is not in it.
std::span<const Contract> all_contracts();

/// \return nullptr: no contract has that name
const Contract* find_contract(std::string_view name);

/// Names of the contracts that a job's ranks get, in the order of all_contracts(), each once. Without
/// `named` the default set. Named ones are added to that, or, where one of them is "none", to
/// dtrun's own alone.
/// \param named     values of --contract: a name, or several with commas between them
/// \param in_slurm  in a Slurm allocation "slurm" is in the default set
/// Errc: invalid_input, for a name that does not exist
Result<std::vector<std::string>> effective_contracts(std::span<const std::string> named,
                                                     bool in_slurm = false);

/// Whether Assign::nodes is to be filled, and each host is to keep a free port for each rank.
bool needs_nodes(std::span<const std::string> contracts);

/// Whether a job of `ranks` ranks can have these.
/// Errc: invalid_input
Result<void> check_contracts(std::span<const std::string> contracts, std::uint32_t ranks);

}  // namespace dtrun::contracts
