#include "worker/ranks/wrappers.h"

#include "worker/ranks/rank_macros.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace dtrun::ranks {
namespace {

bool is_for(const Wrap& wrap, Rank rank) {
    const std::uint32_t number = std::to_underlying(rank);
    return wrap.ranks.empty() || std::ranges::any_of(wrap.ranks, [number](const RankRange& range) {
               return range.first <= number && number <= range.last;
           });
}

/// The program and its arguments take the place of each "{}", or stand at the end.
std::vector<std::string> around(const std::vector<std::string>& words,
                                const std::vector<std::string>& program, const RankMacros& macros) {
    std::vector<std::string> argv;
    for (const std::string& word : words) {
        if (word == "{}")
            argv.insert(argv.end(), program.begin(), program.end());
        else
            argv.push_back(macros.replace(word));
    }
    if (std::ranges::find(words, "{}") == words.end())
        argv.insert(argv.end(), program.begin(), program.end());
    return argv;
}

}  // namespace

Result<Wrappers> Wrappers::find(const std::vector<Wrap>& wraps, const std::string& directory,
                                const std::string& path) {
    Wrappers found;
    for (const Wrap& wrap : wraps) {
        if (wrap.words.empty()) return fail(Errc::invalid_input, "a wrapper without words");
        auto program = find_program(wrap.words.front(), directory, path);
        if (!program) return std::unexpected(program.error());
        found.wrappers_.push_back({wrap, std::move(*program)});
    }
    return found;
}

bool Wrappers::are_for_all() const {
    return std::ranges::any_of(wrappers_,
                               [](const Wrapper& wrapper) { return wrapper.wrap.ranks.empty(); });
}

void Wrappers::apply(RankCommand& command, const RankSlot& slot, const std::string& host,
                     const contracts::Environment& env) const {
    const RankMacros macros = RankMacros::of_wrapper(slot, host, env);
    for (const Wrapper& wrapper : std::views::reverse(wrappers_)) {
        if (!is_for(wrapper.wrap, slot.rank)) continue;
        command.argv = around(wrapper.wrap.words, command.argv, macros);
        command.path = wrapper.path;
    }
}

}  // namespace dtrun::ranks
