#pragma once

#include "base/result.h"
#include "rendezvous/wire/request.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::asking {

/// A word of `dtrun store`, which asks for one operation.
struct StoreVerb {
    /// What is shown of an answer.
    enum class Shows {
        nothing,
        value,
        number,
        was_set,  ///< the value that is there, if it was not
        existed,  ///< that nothing was there
        dropped,  ///< that there was no job
        status,
        changes,  ///< of a watched key, until the end
        keys
    };

    std::string_view name;
    std::string_view operands;  ///< as its usage has them
    std::size_t min = 0, max = 0;
    Op op{};
    Shows shows{};
    std::string_view help{};  ///< in lines of at most 52 characters

    bool takes_value() const { return operands.ends_with("VALUE|-"); }  ///< as its last operand
};

/// What `dtrun status` asks, which is no word of `dtrun store`.
inline constexpr StoreVerb kStatusVerb{"status", "[HOST[:PORT]]", 0,
                                       1,        Op::status,      StoreVerb::Shows::status};

/// What `dtrun store` is to do.
struct StoreOrder {
    StoreVerb verb = kStatusVerb;
    std::vector<std::string> operands;  ///< as many as the verb takes
    std::optional<std::chrono::milliseconds> timeout;
    bool nul = false;  ///< list, watch: what is written ends with a NUL, not with a line's end

    /// Whether the value stands on standard input.
    bool reads_input() const { return verb.takes_value() && operands.back() == "-"; }
};

/// Errc: invalid_input
Result<StoreVerb> find_store_verb(std::string_view name);
Result<void> check_operands(const StoreVerb& verb, std::span<const std::string> operands);

/// What stands in --help above the options.
std::string store_words_help();

}  // namespace dtrun::asking
