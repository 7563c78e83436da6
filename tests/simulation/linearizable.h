#pragma once

#include "base/clock.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrun::simulation {

/// Something that a program has asked of a key of the store, and what it was answered.
struct Operation {
    enum class Kind { set, get, add, compare_set, append, erase, push, pop };

    Kind kind{};
    std::string argument{};                 ///< value; add: the number
    std::optional<std::string> expected{};  ///< of compare_set
    Deadline invoked{};
    /// Nothing: whether it was done, and when, is not known.
    std::optional<Deadline> returned{};
    std::optional<std::string> result{};  ///< value, sum, length; nothing: there was no value
    bool was_set = false;                 ///< by compare_set
    std::string who{};
};

std::string describe(const Operation& operation);

/// Whether the operations on a key can have been done one at a time, each at some moment between its
/// call and its answer, with these answers. Those whose end is not known may have been done at any later
/// moment, or never. The search is that of Wing and Gong, which remembers where it has been (Lowe).
bool is_linearizable(std::vector<Operation> operations);

}  // namespace dtrun::simulation
