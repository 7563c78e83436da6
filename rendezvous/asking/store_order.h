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
    std::string_view help{};    ///< in lines of at most 52 characters
    std::string_view option{};  ///< that no other word has
    Op op_with_option{};

    bool takes_value() const { return operands.ends_with("VALUE|-"); }  ///< as its last operand
    /// Whether what stands behind these operands is one, too, whatever it looks like: a word of a command.
    bool is_in_command(std::span<const std::string> before) const {
        return op == Op::lock && before.size() > 1;
    }
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
    bool is_prefix = false;                        ///< rm, watch: the key is that of many
    std::optional<std::chrono::milliseconds> ttl;  ///< set: how long the key stays
    std::optional<std::string> holder;             ///< lock: the key's value while it is held

    /// Whether the value stands on standard input.
    bool reads_input() const { return verb.takes_value() && operands.back() == "-"; }
    /// Whether something of the answer would be lost without standard output.
    bool writes_output() const {
        using enum StoreVerb::Shows;
        return verb.shows != nothing && verb.shows != existed && verb.shows != dropped;
    }
};

/// Errc: invalid_input
Result<StoreVerb> find_store_verb(std::string_view name);
/// Makes it the order's, whose operands and options have been read. Errc: invalid_input (they are not this word's)
Result<void> take_verb(StoreOrder& order, const StoreVerb& verb);

/// What stands in --help above the options.
std::string store_words_help();

}  // namespace dtrun::asking
