#pragma once
// What commands that ask the head of a running job have in common.

#include "base/loop/asio.h"
#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/control/control_client.h"
#include "launcher/control/control_place.h"
#include "launcher/plan/environment.h"

#include <boost/json/object.hpp>
#include <chrono>
#include <cstddef>
#include <string_view>

namespace dtrun::commands {

/// Options and operands in any order. \param D  has the operands in own.operands
template <class D>
Result<D> read_operands(cli::Words words, const cli::FlagTable<D>& flags, std::size_t least,
                        std::size_t most, std::string_view usage) {
    D parsed;
    while (!words.empty()) {
        const auto rest = cli::read_options(flags, words, parsed);
        if (!rest) return std::unexpected(rest.error());
        if (parsed.asked != cli::Ask::nothing) return parsed;
        words = rest->words;
        if (words.empty()) break;
        parsed.own.operands.push_back(words[0]);
        words = words.subspan(1);
    }
    if (parsed.own.operands.size() < least || parsed.own.operands.size() > most)
        return fail(Errc::invalid_input, "{}", usage);
    return parsed;
}

/// The jobs of this user whose heads run here.
std::vector<control::JobSocket> jobs_here(plan::EnvironmentView environment);
/// As control::choose_job().
Result<control::JobSocket> find_job(std::string_view word, plan::EnvironmentView environment);

/// Says what has gone wrong. \return the exit code: that a job ends is nobody's fault
int status_of(const Error& error);

/// What the head of a job says of it. \param limit  for what has to be measured; 0: nothing is
asio::awaitable<Result<boost::json::object>> view_of(control::ControlClient& client,
                                                     std::chrono::milliseconds limit);

/// Runs a coroutine that yields an exit code.
int run_to_end(asio::io_context& io, asio::awaitable<int> task);

}  // namespace dtrun::commands
