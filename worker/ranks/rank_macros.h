#pragma once

#include "contracts/variables.h"
#include "rendezvous/wire/rank_messages.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::ranks {

/// What words of a command line may ask of the rank that they are for.
class RankMacros {
public:
    /// ${rank}, ${local_rank}, ${world_size}, ${local_world_size} and ${node_rank}, as of torchrun.
    static RankMacros of_program(const Assign& assign, const RankSlot& slot);
    /// {rank}, {local_rank}, {host} and, as of nsys, %q{NAME}: the value of a variable of the rank.
    /// \param env  outlives it
    static RankMacros of_wrapper(const RankSlot& slot, const std::string& host,
                                 const contracts::Environment& env);

    /// Whatever only looks like a macro stays, and so does what takes the place of one. A variable that
    /// the rank does not have is none.
    std::string replace(std::string_view text) const;
    std::vector<std::string> replace(std::vector<std::string> words) const;

private:
    /// What stands for the macro that `text` begins with, and the macro's length; 0: it begins with none.
    std::pair<std::string_view, std::size_t> at_begin(std::string_view text) const;

    std::vector<std::pair<std::string_view, std::string>> names_;
    const contracts::Environment* variables_ = nullptr;  ///< for %q{NAME}
};

}  // namespace dtrun::ranks
