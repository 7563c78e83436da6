#pragma once

#include "base/result.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::asking {

/// What `dtrun store` is to do.
struct StoreOrder {
    enum class Verb {
        get,
        set,
        create,
        compare_set,
        append,
        add,
        push,
        pop,
        length,
        wait,
        watch,
        list,
        count,
        erase,
        drop,
        status
    };
    Verb verb = Verb::status;           ///< of a daemon, which is no word of `dtrun store`
    std::vector<std::string> operands;  ///< as many as the verb takes
    bool takes_value = false;           ///< the last operand is a value
    std::optional<std::chrono::milliseconds> timeout;
    bool nul = false;  ///< list, watch: what is written ends with a NUL, not with a line's end

    /// Whether the value stands on standard input.
    bool reads_input() const { return takes_value && operands.back() == "-"; }
};

struct StoreVerb {
    std::string_view name;
    StoreOrder::Verb verb{};
    std::string_view operands;  ///< as its usage has them
    std::size_t min = 0, max = 0;
    bool takes_value() const { return operands.ends_with("VALUE|-"); }
};

/// Errc: invalid_input
Result<StoreVerb> find_store_verb(std::string_view name);
Result<void> check_operands(const StoreVerb& verb, std::span<const std::string> operands);

/// What stands in --help above the options.
extern const std::string_view kStoreHelp;

}  // namespace dtrun::asking
