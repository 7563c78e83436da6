#include "collectives/api/c_arguments.h"

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

namespace {

/// Whether arrays lie one behind the other in the order in which they come, as those do that were made so.
bool lie_in_order(int dtype, void* const* arrays, const std::size_t* counts, std::size_t number) {
    std::uintptr_t end = 0;
    for (std::size_t i = 0; i < number; ++i) {
        if (counts[i] == 0) continue;
        const CallerBytes one = bytes_at(dtype, arrays[i], counts[i]);
        if (one.begin < end) return false;
        end = one.begin + one.bytes;
    }
    return true;
}

}  // namespace

Result<void> check_all_apart(int dtype, void* const* arrays, const std::size_t* counts,
                             std::size_t number, float* const* errors) {
    if (errors == nullptr && lie_in_order(dtype, arrays, counts, number)) return {};
    struct Place {
        CallerBytes bytes;
        std::size_t index;
        const char* what;
    };
    std::vector<Place> places;
    places.reserve(errors != nullptr ? 2 * number : number);
    for (std::size_t i = 0; i < number; ++i) {
        if (counts[i] == 0) continue;
        places.push_back({bytes_at(dtype, arrays[i], counts[i]), i, "array"});
        if (errors != nullptr && errors[i] != nullptr)
            places.push_back({bytes_at(DTRUN_F32, errors[i], counts[i]), i, "error"});
    }
    const auto begin_of = [](const Place& place) { return place.bytes.begin; };
    std::ranges::sort(places, {}, begin_of);
    const auto found = std::ranges::adjacent_find(
        places, [](const Place& a, const Place& b) { return a.bytes.overlaps(b.bytes); });
    if (found == places.end()) return {};
    const Place& other = *(found + 1);
    return fail(Errc::invalid_input,
                "{} {} and {} {} overlap, as a tensor that is there twice does: give each once",
                found->what, found->index, other.what, other.index);
}

namespace {

/// The parts of ranks, where each has its own length.
Result<void> check_counts(const Given& given, std::uint32_t ranks) {
    auto checked = check(given.dtype, given.counts, 1, "counts");
    std::size_t all = 0;
    for (std::uint32_t rank = 0; checked && rank < ranks; ++rank) {
        const std::size_t count = given.counts[rank];
        checked = first_failure(check(given.dtype, given.counts, count, "a rank's part"),
                                check(given.dtype, given.counts, all += count, "out"));
    }
    return checked;
}

/// Checks that arrays do not overlap but where the operation works in place.
Result<void> check_arrays_apart(const Given& given, const Operation& what, std::uint32_t rank,
                                std::uint32_t ranks, const std::optional<Compression>& how) {
    const OperationRow& row = row_of(given.kind);
    const std::size_t in = elements_of(row.in, what, rank, ranks);
    const std::size_t out = elements_of(row.out, what, rank, ranks);
    std::size_t place = 0;  // of this rank's part among all
    if (has_all_parts(row.in) != has_all_parts(row.out)) {
        place = rank * given.count;
        for (const std::size_t count : what.counts.first(what.counts.empty() ? 0 : rank))
            place += count;
    }
    if (!row.in_place) place = kNowhere;
    auto apart = has_all_parts(row.out)
                     ? check_apart(given.dtype, given.out, out, given.in, in, place)
                     : check_apart(given.dtype, given.in, in, given.out, out, place);
    if (!apart || !how || how->error == nullptr) return apart;
    // What compression makes good for them the next time.
    const CallerBytes error = bytes_at(DTRUN_F32, how->error, in);
    if (!error.overlaps(bytes_at(given.dtype, given.in, in)) &&
        !error.overlaps(bytes_at(given.dtype, given.out, out)))
        return {};
    return fail(Errc::invalid_input,
                "compression's error overlaps an array: give it memory of its own");
}

}  // namespace

Result<void> check(const dtrun_comm* comm, const Given& given, const Operation& what,
                   const std::optional<Compression>& how) {
    if (auto checked = check(comm); !checked) return checked;
    const OperationRow& row = row_of(given.kind);
    const std::uint32_t rank = comm->communicator->rank();
    const std::uint32_t ranks = comm->communicator->size();
    if (row.in == Extent::counted)
        if (auto checked = check_counts(given, ranks); !checked) return checked;
    const auto array = [&](Extent extent, const void* data, const char* name) -> Result<void> {
        if (extent == Extent::none) return {};
        const bool of_all = has_all_parts(extent) && extent != Extent::all_counted;
        return check(given.dtype, data, elements_of(extent, what, rank, 1), name,
                     of_all ? ranks : 1);
    };
    const bool has_in = row.in != Extent::none;
    if (auto checked = array(row.in, given.in, "in"); !checked) return checked;
    if (auto checked = array(row.out, given.out, has_in ? "out" : "data"); !checked) return checked;
    if (row.reduces)
        if (auto checked = check_reduce(given.dtype, given.reduce); !checked) return checked;
    if (!has_in) return {};
    return check_arrays_apart(given, what, rank, ranks, how);
}

}  // namespace dtrun::collectives
