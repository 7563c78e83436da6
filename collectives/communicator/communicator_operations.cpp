#include "collectives/communicator/communicator.h"

#include "collectives/algorithms/by_messages.h"
#include "collectives/algorithms/compressed_parts.h"
#include "collectives/codec/format_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace dtrun::collectives {
namespace {

/// Arrays below kAloneBytesMin are fused up to kFusedBytesMax; larger ones lose nothing by going
/// alone.
constexpr std::size_t kFusedBytesMax = 32u << 20;
constexpr std::size_t kAloneBytesMin = 4u << 20;
/// Of values that are halves to begin with.
constexpr Compression kHalves{.format = Format::f16};

/// Forgets what error feedback has kept of values that go in full now: added to those of a thousand calls later, it
/// would be noise. \param error  nullptr: nothing is kept
void forget_error(float* error, std::size_t count) {
    const std::span<float> kept(error, error != nullptr ? count : 0);
    if (std::ranges::any_of(kept, [](float one) { return one != 0; }))
        std::ranges::fill(kept, 0.0F);
}

}  // namespace

Result<void> Communicator::check_root(std::uint32_t root) const {
    if (root < size()) return {};
    return fail(Errc::invalid_input, "there is no rank {} among {}", root, size());
}

Result<void> Communicator::check_compression(DType type, Reduce reduce,
                                             const Compression* compression) const {
    if (reduce == Reduce::adasum && !is_float(type))
        return fail(Errc::invalid_input, "Adasum is for floating point, not {}", name_of(type));
    if (reduce == Reduce::adasum && group_->on_device())
        return fail(Errc::invalid_input, "Adasum is for host memory: copy the data there");
    if (compression == nullptr) return {};
    if (reduce != Reduce::sum && reduce != Reduce::average)
        return fail(Errc::invalid_input, "only sum and average can be compressed, not {}",
                    name_of(reduce));
    return check_values(type, compression);
}

Result<void> Communicator::check_values(DType type, const Compression* compression) const {
    if (compression == nullptr || type == DType::f32) return {};
    if (group_->on_device())
        return fail(Errc::invalid_input, "on a GPU only f32 can be compressed, not {}",
                    name_of(type));
    if (type == DType::f16 || type == DType::bf16) return {};
    return fail(Errc::invalid_input, "only f32, f16 and bf16 can be compressed, not {}",
                name_of(type));
}

Result<void> Communicator::check_on_host(const Compression* compression) const {
    if (compression == nullptr || !group_->on_device()) return {};
    return fail(Errc::invalid_input, "on a GPU only allreduce can be compressed");
}

bool Communicator::gains(std::size_t count) const {
    // Below that, to encode and to take turns costs more than the wire does. Each rail has its slice.
    constexpr std::size_t kRailValuesMin = 32UL << 10;
    return host_topology_.topology.hosts() > 1 &&
           count >= kRailValuesMin * host_topology_.topology.rails();
}

Communicator::Way Communicator::way_of(CallName operation, const Compression* compression,
                                       DType type, std::size_t count) {
    if (compression == nullptr || size() == 1) return {};
    const bool insists = compresses_ == Compresses::always ||
                         compression->policy == CompressionPolicy::always ||
                         row_of(compression->format).use == FormatRow::Use::study;
    if (insists || group_->on_device()) return {compression};
    if (!gains(count)) return {};
    if (compresses_ == Compresses::what_leaves) return {compression};
    CompressionTrial& trial =
        trials_[{operation.number, compression->format, type, std::bit_width(count)}];
    return {trial.way() == CompressionTrial::compressed ? compression : nullptr, &trial};
}

/// Times a call that is part of a trial, from when all ranks have come to it: who came last would find data of
/// the others there, and those would have waited. \param body  Result<void>()
template <class Body>
Result<void> Communicator::in_trial(CompressionTrial* trial, std::size_t count, Body body) {
    if (trial == nullptr) return body();
    if (trial->tries())
        if (auto met = group_->run(op::barrier()); !met) return met;
    const auto begin = std::chrono::steady_clock::now();
    Result<void> done = body();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (!done || !trial->took(took.count() / static_cast<double>(count))) return done;
    CompressionTrial::Times slowest = trial->times();
    done = group_->run(
        op::allreduce(slowest.data(), slowest.data(), slowest.size(), DType::f64, Reduce::max));
    if (done) trial->decide(slowest);
    return done;
}

/// How averages of halves in full go between hosts: they are added up as f32, and travel as halves all
/// the same. nullptr: in another way.
const Compression* Communicator::for_halves(std::size_t count, DType type, Reduce reduce) const {
    const bool halves = type == DType::f16 && with_room(type, reduce) != nullptr && gains(count);
    return halves ? &kHalves : nullptr;
}

Communicator::Hierarchy Communicator::levels() const {
    if (host_topology_.topology.one_host()) return {apart_, nullptr};
    return {host_topology_.topology, host_topology_.host.get()};
}

/// In what an average is added up, if its own type may have no room for the sum. What is in memory of a
/// GPU stays as it is.
const StandIn* Communicator::with_room(DType type, Reduce reduce) const {
    if (reduce != Reduce::average || size() == 1 || group_->on_device()) return nullptr;
    return average_stand_in(type);
}

Result<void> Communicator::check(const Operation& what, const Compression* compression) const {
    const OperationRow& row = row_of(what.kind);
    const bool is_allreduce = what.kind == Operation::Kind::allreduce;
    if (row.rooted)
        if (auto checked = check_root(what.root); !checked) return checked;
    if (row.reduces && what.reduce == Reduce::adasum && !is_allreduce)
        return fail(Errc::invalid_input, "Adasum is for allreduce");
    if (compression == nullptr && what.reduce != Reduce::adasum) return {};
    auto checked = row.reduces ? check_compression(what.type, what.reduce, compression)
                               : check_values(what.type, compression);
    if (!checked || is_allreduce) return checked;
    return check_on_host(compression);
}

Result<void> Communicator::run(const Operation& what, const Compression* compression) {
    if (auto checked = check(what, compression); !checked) return checked;
    const OperationRow& row = row_of(what.kind);
    Call call{.operation = call_name_of(what.kind), .count = what.count, .type = what.type};
    std::size_t values = 0;
    Way way;
    if (compression != nullptr) {
        values = std::max(elements_of(row.in, what, rank_, size()),
                          elements_of(row.out, what, rank_, size()));
        way = way_of(call.operation, compression, what.type, values);
    }
    if (row.reduces) call.reduce = static_cast<int>(what.reduce);
    if (row.rooted) call.root = what.root;
    if (way.compression != nullptr) call.format = static_cast<int>(way.compression->format);
    call.on_trial = way.trial != nullptr;
    if (!what.counts.empty()) {
        call.count = elements_of(row.out, what, rank_, size());
        call.parts = digest(what.counts);
    }
    Operation own = what;
    if (row.reduces) own.type = arithmetic_of(what.type);
    return perform(call, [&](std::uint64_t number) {
        if (way.goes_in_full())
            forget_error(compression->error, elements_of(row.in, what, rank_, size()));
        return in_trial(way.trial, values, [&] { return carry_out(own, way.compression, number); });
    });
}

Result<void> Communicator::carry_out(const Operation& what, const Compression* compression,
                                     std::uint64_t call) {
    if (what.kind == Operation::Kind::allreduce) return allreduce(what, compression, call);
    if (compression != nullptr) {
        const auto [topology, host] = levels();
        if (what.kind == Operation::Kind::reduce_scatter)
            return compressed_reduce_scatter(*group_, topology, host, what.in, what.out, what.count,
                                             what.type, what.reduce, *compression, call);
        return compressed_allgather(*group_, topology, what.in, what.out, what.count, what.type,
                                    *compression, call);
    }
    if (row_of(what.kind).reduces) {
        if (const StandIn* const wider = with_room(what.type, what.reduce))
            return run_by(*wider, *group_, fusion_, rank_, size(), what);
        return group_->run(what);
    }
    if (!what.counts.empty()) return move_parts(what);
    return group_->run(op::moved(what.kind, what.in, what.out, what.bytes(), what.root));
}

/// What is only moved is bytes from here on: these are parts of different lengths.
Result<void> Communicator::move_parts(const Operation& what) {
    std::vector<std::size_t> bytes(what.counts.begin(), what.counts.end());
    for (std::size_t& one : bytes) one *= bytes_of(what.type);
    return group_->run(op::allgatherv(what.in, what.out, bytes));
}

Result<void> Communicator::reduce_one(const Operation& what) {
    if (what.reduce == Reduce::adasum)
        return adasum_allreduce(*group_, rank_, size(), what.in, what.out, what.count, what.type);
    if (const StandIn* const wider = with_room(what.type, what.reduce))
        return run_by(*wider, *group_, fusion_, rank_, size(), what);
    return group_->run(what);
}

Result<void> Communicator::allreduce(const Operation& what, const Compression* compression,
                                     std::uint64_t call) {
    const Compression* const how =
        compression != nullptr ? compression : for_halves(what.count, what.type, what.reduce);
    if (how == nullptr) return reduce_one(what);
    const TypedSegment all{what.in, what.out, what.count, how->error, what.type};
    return reduce_compressed({&all, 1}, what.reduce, *how, call);
}

Result<void> Communicator::allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce,
                                          const Compression* compression) {
    if (auto checked = check_compression(type, reduce, compression); !checked) return checked;
    const bool is_one = arrays.size() == 1;
    Call call{.operation = is_one ? CallName("allreduce") : CallName("allreduce of many arrays"),
              .type = type,
              .reduce = static_cast<int>(reduce)};
    std::vector<std::size_t> counts;
    counts.reserve(arrays.size());
    for (const Array& array : arrays) {
        call.count += array.count;
        counts.push_back(array.count);
    }
    if (!is_one) call.parts = digest(counts);
    const Way way = way_of(call.operation, compression, type, call.count);
    compression = way.compression;
    call.format = compression != nullptr ? static_cast<int>(compression->format) : 0;
    call.on_trial = way.trial != nullptr;
    type = arithmetic_of(type);
    const auto reduce_all = [&](std::uint64_t number) -> Result<void> {
        const Compression* const how =
            compression != nullptr ? compression : for_halves(call.count, type, reduce);
        if (how != nullptr) {
            std::vector<TypedSegment> segments;
            for (const Array& array : arrays)
                segments.push_back({array.data, array.data, array.count,
                                    compression != nullptr ? array.error : nullptr, type});
            return reduce_compressed(segments, reduce, *how, number);
        }
        if (const StandIn* const wider = with_room(type, reduce)) {
            std::vector<Reduced> all;
            for (const Array& array : arrays) all.push_back({array.data, array.data, array.count});
            return allreduce_by(*wider, *group_, fusion_, all, type, reduce);
        }
        // One array is reduced as allreduce() does it, which other ranks may have called.
        if (group_->fuses() && !is_one && reduce != Reduce::adasum)
            return group_->allreduce_many(arrays, type, reduce);
        for (std::size_t first = 0; first < arrays.size();) {
            const std::size_t number_fused = fused(arrays.subspan(first), type, reduce);
            auto done = reduce_fused(arrays.subspan(first, number_fused), type, reduce);
            if (!done) return done;
            first += number_fused;
        }
        return {};
    };
    return perform(call, [&](std::uint64_t number) {
        if (way.goes_in_full())
            for (const Array& array : arrays) forget_error(array.error, array.count);
        return in_trial(way.trial, call.count, [&] { return reduce_all(number); });
    });
}

/// How many of the first arrays are fused into one operation.
std::size_t Communicator::fused(std::span<const Array> arrays, DType type, Reduce reduce) const {
    if (reduce == Reduce::adasum) return 1;  // which looks at each by itself
    const auto small = [type](const Array& array) {
        return array.count * bytes_of(type) < kAloneBytesMin;
    };
    std::size_t number = 0;
    std::size_t bytes = 0;
    for (; number < arrays.size() && small(arrays[number]); ++number) {
        bytes += arrays[number].count * bytes_of(type);
        if (bytes > kFusedBytesMax) break;
    }
    return std::max<std::size_t>(number, 1);
}

Result<void> Communicator::reduce_fused(std::span<const Array> arrays, DType type, Reduce reduce) {
    if (arrays.size() == 1) {
        const Array& array = arrays.front();
        return reduce_one(op::allreduce(array.data, array.data, array.count, type, reduce));
    }
    std::size_t count = 0;
    for (const Array& array : arrays) count += array.count;
    const std::size_t element = bytes_of(type);
    fusion_.resize(std::max(fusion_.size(), count * element));
    std::byte* at = fusion_.data();
    for (const Array& array : arrays) {
        if (array.count > 0) std::memcpy(at, array.data, array.count * element);
        at += array.count * element;
    }
    auto done = group_->run(op::allreduce(fusion_.data(), fusion_.data(), count, type, reduce));
    if (!done) return done;
    at = fusion_.data();
    for (const Array& array : arrays) {
        if (array.count > 0) std::memcpy(array.data, at, array.count * element);
        at += array.count * element;
    }
    return {};
}

Result<void> Communicator::reduce_compressed(std::span<const TypedSegment> segments, Reduce reduce,
                                             const Compression& compression, std::uint64_t call) {
    if (group_->on_device()) {
        std::vector<Segment> floats;
        for (const TypedSegment& one : segments)
            floats.push_back({static_cast<const float*>(one.in), static_cast<float*>(one.out),
                              one.count, one.error});
        return group_->allreduce_compressed(floats, reduce, compression, call);
    }
    const auto [topology, host] = levels();
    return compressed_.run(*group_, topology, host, segments, reduce, compression, call);
}

Result<void> Communicator::message(const Call& call, std::span<const Send> sends,
                                   std::span<const Receive> receives) {
    const auto check = [this](std::uint32_t peer) -> Result<void> {
        if (auto checked = check_root(peer); !checked) return checked;
        if (peer == rank_)
            return fail(Errc::invalid_input, "rank {} has no need to write to itself", rank_);
        return {};
    };
    for (const Send& send : sends)
        if (auto checked = check(send.peer); !checked) return checked;
    for (const Receive& receive : receives)
        if (auto checked = check(receive.peer); !checked) return checked;
    return perform(call, [&](std::uint64_t) { return exchange(*group_, sends, receives); });
}

Result<void> Communicator::send(const void* data, std::size_t count, DType type, std::uint32_t to) {
    const Send send{to, data, count * bytes_of(type)};
    return message({.operation = "send",
                    .count = count,
                    .type = type,
                    .root = to,
                    .collective = false,
                    .sends = {to, count}},
                   {&send, 1}, {});
}

Result<void> Communicator::receive(void* data, std::size_t count, DType type, std::uint32_t from) {
    const Receive receive{from, data, count * bytes_of(type)};
    return message({.operation = "recv",
                    .count = count,
                    .type = type,
                    .root = from,
                    .collective = false,
                    .receives = {from, count}},
                   {}, {&receive, 1});
}

Result<void> Communicator::sendrecv(const void* out, std::size_t out_count, std::uint32_t to,
                                    void* in, std::size_t in_count, std::uint32_t from,
                                    DType type) {
    const Send send{to, out, out_count * bytes_of(type)};
    const Receive receive{from, in, in_count * bytes_of(type)};
    return message({.operation = "sendrecv",
                    .count = in_count,
                    .type = type,
                    .root = from,
                    .collective = false,
                    .sends = {to, out_count},
                    .receives = {from, in_count}},
                   {&send, 1}, {&receive, 1});
}

}  // namespace dtrun::collectives
