#include "collectives/algorithms/compressed_parts.h"

#include "collectives/algorithms/host_mean.h"
#include "collectives/algorithms/segments.h"
#include "collectives/codec/codec.h"
#include "collectives/codec/reduce.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace dtrun::collectives {
namespace {

/// Values of each part that go at a time, at a block's boundary: all parts together take some megabytes.
std::size_t step_of(std::uint32_t parts) {
    constexpr std::size_t kValues = 1UL << 20;
    return std::max<std::size_t>(kValues / parts / kBlock, 1) * kBlock;
}

/// A seed that differs for ranks, calls and places.
std::uint64_t seed_of(std::uint64_t call, std::uint32_t rank, std::size_t at) {
    return call * 0x9e3779b97f4a7c15 ^ rank * 0xc2b2ae3d27d4eb4f ^ at * 0x165667b19e3779f9;
}

/// Encodes values and keeps what is lost of them, if somebody wants it.
void encode_with_error(const Compression& compression, std::uint64_t seed, const float* values,
                       std::size_t n, std::byte* to, const Segments& segments, std::size_t at,
                       float error_factor = 1) {
    if (!segments.has_errors(at, n))
        return encode(compression.format, compression.rounding, seed, values, n, to);
    std::vector<float> errors(n);
    encode(compression.format, compression.rounding, seed, values, n, to, errors.data());
    for (float& error : errors) error *= error_factor;
    segments.put_errors(at, n, errors.data());
}

/// One step of a reduce-scatter: values [at, at + n) of every rank's part.
class ScatterStep {
public:
    ScatterStep(Group& group, const Topology& topology, HostGroup* host, const Segments& values,
                std::size_t count, Reduce reduce, const Compression& compression,
                std::uint64_t call)
        : group_(group),
          topology_(topology),
          host_(host),
          values_(values),
          count_(count),
          mean_(topology, reduce, compression.format),
          compression_(compression),
          call_(call) {
        for (std::uint32_t rail = 0; rail < topology.rails(); ++rail)
            carried_.push_back(topology.carried_by(rail));
    }

    /// \param result  n values: this rank's sum
    Result<void> run(std::size_t at, std::size_t n, float* result) {
        at_ = at;
        n_ = n;
        if (auto done = sum_on_host(); !done)
            return std::unexpected(group_.failed_in_memory(done.error()));
        if (topology_.place() < topology_.rails())
            if (auto done = exchange(); !done) return done;
        if (auto done = hand_out(result); !done)
            return std::unexpected(group_.failed_in_memory(done.error()));
        return {};
    }

private:
    const std::vector<std::uint32_t>& own_ranks() const { return carried_[topology_.place()]; }

    /// This rank's values of a part, with the errors of the last call.
    const float* part(std::uint32_t rank, float* room) const {
        return values_.take(rank * count_ + at_, n_, room);
    }

    /// Sums of the host's ranks for all ranks on this rail, part by part.
    Result<void> sum_on_host() {
        const bool on_rail = topology_.place() < topology_.rails();
        sums_.resize(on_rail ? own_ranks().size() * n_ : 0);
        if (host_ == nullptr) {
            for (std::size_t i = 0; i < own_ranks().size(); ++i) {
                float* const room = sums_.data() + i * n_;
                const float* const from = part(own_ranks()[i], room);
                if (from != room) std::copy_n(from, n_, room);
            }
            mean_.divide_sums(sums_.data(), sums_.size());
            return {};
        }
        std::vector<Chunk> chunks;
        std::size_t before = 0;
        for (const auto& ranks : carried_) {
            chunks.push_back({before, ranks.size() * n_});
            before += ranks.size() * n_;
        }
        const auto fill = [&](std::size_t from, std::size_t number, std::byte* to) {
            std::size_t rail = 0;
            while (rail + 1 < chunks.size() && from >= chunks[rail + 1].at) ++rail;
            auto* const room = reinterpret_cast<float*>(to);
            for (std::size_t done = 0; done < number;) {
                const std::size_t offset = from + done - chunks[rail].at;
                const std::uint32_t rank = carried_[rail][offset / n_];
                const std::size_t here = std::min(number - done, n_ - offset % n_);
                const float* const values =
                    values_.take(rank * count_ + at_ + offset % n_, here, room + done);
                if (values != room + done) std::copy_n(values, here, room + done);
                done += here;
            }
        };
        auto done = host_->sum_chunks(chunks, DType::f32, Reduce::sum, fill, sums_.data());
        if (done && on_rail) mean_.divide_sums(sums_.data(), sums_.size());
        return done;
    }

    /// Sends each other host the sums for its ranks, and adds up what comes for this one's.
    Result<void> exchange() {
        const auto& ranks = own_ranks();
        const std::size_t bytes = encoded_bytes(compression_.format, n_);
        std::vector<std::size_t> mine;  // indexes in `ranks`
        for (std::size_t i = 0; i < ranks.size(); ++i)
            if (topology_.host_of(ranks[i]) == topology_.host()) mine.push_back(i);
        sent_.resize(ranks.size() * bytes);
        come_.resize(topology_.hosts() * mine.size() * bytes);
        std::vector<Send> sends;
        std::vector<Receive> receives;
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            const std::uint32_t host = topology_.host_of(ranks[i]);
            if (host == topology_.host()) continue;
            std::byte* const to = sent_.data() + i * bytes;
            encode_with_error(
                compression_, seed_of(call_, topology_.rank(), ranks[i] * count_ + at_),
                sums_.data() + i * n_, n_, to, values_, ranks[i] * count_ + at_, mean_.divisor());
            sends.push_back({topology_.ranks_of(host)[topology_.place()], to, bytes});
        }
        for (std::uint32_t host = 0; host < topology_.hosts(); ++host)
            for (std::size_t k = 0; k < mine.size() && host != topology_.host(); ++k)
                receives.push_back({topology_.ranks_of(host)[topology_.place()],
                                    come_.data() + (host * mine.size() + k) * bytes, bytes});
        auto pending = group_.start(sends, receives);
        if (!pending) return std::unexpected(pending.error());
        if (auto done = (*pending)->wait(); !done) return done;
        results_.resize(mine.size() * n_);
        for (std::size_t k = 0; k < mine.size(); ++k) {
            float* const sum = results_.data() + k * n_;
            std::copy_n(sums_.data() + mine[k] * n_, n_, sum);
            for (std::uint32_t host = 0; host < topology_.hosts(); ++host)
                if (host != topology_.host())
                    decode_add(compression_.format, come_.data() + (host * mine.size() + k) * bytes,
                               n_, sum);
            mean_.finish(sum, n_);
        }
        return {};
    }

    /// Each rank of the host takes its own from the one that has it.
    Result<void> hand_out(float* result) {
        if (host_ == nullptr || topology_.rails() == topology_.places()) {
            std::copy_n(results_.data(), n_, result);
            return {};
        }
        std::vector<Chunk> chunks;
        std::size_t before = 0;
        for (std::uint32_t rail = 0; rail < topology_.rails(); ++rail) {
            const std::size_t ranks =
                (topology_.places() - rail + topology_.rails() - 1) / topology_.rails();
            chunks.push_back({before, ranks * n_});
            before += ranks * n_;
        }
        const std::uint32_t rail = topology_.place() % topology_.rails();
        const std::size_t begin = chunks[rail].at + topology_.place() / topology_.rails() * n_;
        const auto take = [&](std::size_t from, std::size_t number, const std::byte* data) {
            const std::size_t first = std::max(from, begin);
            const std::size_t last = std::min(from + number, begin + n_);
            if (first < last)
                std::copy_n(reinterpret_cast<const float*>(data) + (first - from), last - first,
                            result + (first - begin));
        };
        return host_->share_chunks(chunks, sizeof(float), results_.data(), take);
    }

    Group& group_;
    const Topology& topology_;
    HostGroup* const host_;
    const Segments& values_;
    const std::size_t count_;
    const HostMean mean_;
    const Compression& compression_;
    const std::uint64_t call_;
    std::vector<std::vector<std::uint32_t>> carried_;  ///< by rail: ranks that get something by it
    std::size_t at_ = 0;
    std::size_t n_ = 0;
    std::vector<float> sums_;
    std::vector<float> results_;
    std::vector<std::byte> sent_;
    std::vector<std::byte> come_;
};

}  // namespace

Result<void> compressed_reduce_scatter(Group& group, const Topology& topology, HostGroup* host,
                                       const void* in, void* out, std::size_t count, DType type,
                                       Reduce reduce, const Compression& compression,
                                       std::uint64_t call) {
    if (reduce != Reduce::sum && reduce != Reduce::average)
        return fail(Errc::invalid_input, "only sum and average can be compressed, not {}",
                    name_of(reduce));
    const std::uint32_t size = topology.size();
    const TypedSegment all{in, nullptr, count * size, compression.error, type};
    const TypedSegment own{nullptr, out, count, nullptr, type};
    const Segments values({&all, 1});
    const Segments result({&own, 1});
    if (host != nullptr) host->begin(call);
    ScatterStep step(group, topology, host, values, count, reduce, compression, call);
    const std::size_t most = step_of(size);
    std::vector<float> room(std::min(most, count));
    for (std::size_t at = 0; at < count; at += most) {
        const std::size_t n = std::min(most, count - at);
        if (auto done = step.run(at, n, room.data()); !done) return done;
        result.put(at, n, room.data());
    }
    return {};
}

Result<void> compressed_allgather(Group& group, const Topology& topology, const void* in, void* out,
                                  std::size_t count, DType type, const Compression& compression,
                                  std::uint64_t call) {
    const std::uint32_t size = topology.size();
    const TypedSegment own{in, nullptr, count, compression.error, type};
    const TypedSegment all{nullptr, out, count * size, nullptr, type};
    const Segments values({&own, 1});
    const Segments results({&all, 1});
    const std::size_t most = step_of(size);
    std::vector<float> room(std::min(most, count));
    std::vector<std::byte> mine, everybody;
    for (std::size_t at = 0; at < count; at += most) {
        const std::size_t n = std::min(most, count - at);
        const std::size_t bytes = encoded_bytes(compression.format, n);
        mine.resize(bytes);
        everybody.resize(size * bytes);
        encode_with_error(compression, seed_of(call, topology.rank(), at),
                          values.take(at, n, room.data()), n, mine.data(), values, at);
        auto done = group.run(op::allgather(mine.data(), everybody.data(), bytes));
        if (!done) return done;
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            decode(compression.format, everybody.data() + rank * bytes, n, room.data());
            results.put(rank * count + at, n, room.data());
        }
    }
    return {};
}

}  // namespace dtrun::collectives
