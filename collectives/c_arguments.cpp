#include "collectives/c_arguments.h"

#include "collectives/codec/format_table.h"

#include <cstring>

namespace dtrun::collectives {

#define DTRUN_FORMAT(format, c_name, ...) \
    static_assert(static_cast<int>(Format::format) == (c_name), "the ABI's value");
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT

Result<std::optional<Compression>> compression_of(const dtrun_compression* given) {
    if (given == nullptr) return std::nullopt;
    dtrun_compression own{};
    std::memcpy(&own, given, std::min(given->size, sizeof own));
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

}  // namespace dtrun::collectives
