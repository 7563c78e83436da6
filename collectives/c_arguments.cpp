#include "collectives/c_arguments.h"

#include "base/sized_struct.h"
#include "collectives/codec/format_table.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace dtrun::collectives {

#define DTRUN_FORMAT(format, c_name, ...) \
    static_assert(static_cast<int>(Format::format) == (c_name), "the ABI's value");
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT

Result<std::optional<Compression>> compression_of(const dtrun_compression* given) {
    if (given == nullptr) return std::nullopt;
    const auto read = read_sized(*given, offsetof(dtrun_compression, policy), "dtrun_compression");
    if (!read) return std::unexpected(read.error());
    const dtrun_compression& own = *read;
    if (own.format == DTRUN_UNCOMPRESSED) return std::nullopt;
    const FormatRow* const row = find_format(own.format);
    if (row == nullptr) return fail(Errc::invalid_input, "there is no format {}", own.format);
    Compression compression;
    compression.format = row->format;
    compression.rounding = own.stochastic != 0 ? Rounding::stochastic : Rounding::nearest;
    compression.error = own.error;
    if (own.policy != 0) compression.policy = CompressionPolicy::always;
    return compression;
}

Result<void> check_all_apart(int dtype, void* const* arrays, const std::size_t* counts,
                             std::size_t number, float* const* errors) {
    struct Place {
        Range range;
        std::size_t index;
        const char* what;
    };
    std::vector<Place> places;
    places.reserve(errors != nullptr ? 2 * number : number);
    for (std::size_t i = 0; i < number; ++i) {
        if (counts[i] == 0) continue;
        places.push_back({range_of(dtype, arrays[i], counts[i]), i, "array"});
        if (errors != nullptr && errors[i] != nullptr)
            places.push_back({range_of(DTRUN_F32, errors[i], counts[i]), i, "error"});
    }
    std::ranges::sort(places, {}, [](const Place& place) { return place.range.begin; });
    const auto found = std::ranges::adjacent_find(
        places, [](const Place& a, const Place& b) { return a.range.overlaps(b.range); });
    if (found == places.end()) return {};
    const Place& other = *(found + 1);
    return fail(Errc::invalid_input,
                "{} {} and {} {} overlap, as a tensor that is there twice does: give each once",
                found->what, found->index, other.what, other.index);
}

}  // namespace dtrun::collectives
