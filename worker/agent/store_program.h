#pragma once

#include "base/result.h"
#include "contracts/variables.h"
#include "rendezvous/asking/store_order.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dtrun::agent {

/// The name under which an agent is `dtrun store` for ranks of hosts where dtrun is not installed.
inline constexpr std::string_view kStoreProgram = "dtrun";

/// Makes a folder in which the agent has that name. \param prefix  as ranks::directory_prefix()
/// \return its path. Errc: internal
Result<std::string> make_store_program(const std::string& prefix);

/// Makes ranks find what is in a folder behind all else: a dtrun that is installed wins.
void add_to_path(const std::string& folder, contracts::Environment& env);

/// Reads what stands behind `dtrun store`. \return nothing: its help is asked for. Errc: invalid_input
Result<std::optional<asking::StoreOrder>> parse_store_words(std::span<const std::string> words);

/// What the agent does under that name. \return the process's exit status
int run_store_program(std::span<const std::string> words);

}  // namespace dtrun::agent
