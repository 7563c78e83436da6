#include "collectives/algorithms/adasum.h"

#include "collectives/codec/codec.h"
#include "collectives/codec/default_arithmetic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace dtrun::collectives {
namespace {

/// Dot products of two gradients: a.b, a.a and b.b.
using Dots = std::array<double, 3>;

template <class T>
[[gnu::noinline]] Dots dots_of(const T* a, const T* b, std::size_t count) {
    // Four partial sums of each, since an addition into one sum waits for the one before.
    constexpr std::size_t kLanes = 4;
    std::array<Dots, kLanes> sums{};
    for (std::size_t i = 0; i < count; ++i) {
        Dots& sum = sums[i % kLanes];
        const double x = a[i];
        const double y = b[i];
        sum[0] += x * y;
        sum[1] += x * x;
        sum[2] += y * y;
    }
    Dots all{};
    for (const Dots& sum : sums)
        for (std::size_t k = 0; k < all.size(); ++k) all[k] += sum[k];
    return all;
}

/// How much of a gradient enters the sum. One that is zero has nothing in common with the other.
double weight(double dot, double square) {
    return square == 0 ? 1 : 1 - dot / (2 * square);
}

template <class T>
[[gnu::noinline]] void combine(T* out, const T* a, const T* b, std::size_t count,
                               const Dots& dots) {
    const double of_a = weight(dots[0], dots[1]);
    const double of_b = weight(dots[0], dots[2]);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>(of_a * a[i] + of_b * b[i]);
}

/// One call on one rank.
template <class T>
class Adasum {
public:
    Adasum(Group& group, std::uint32_t rank, std::uint32_t size, T* data, std::size_t count)
        : group_(group),
          rank_(rank),
          paired_(std::bit_floor(size)),
          surplus_(size - paired_),
          data_(data),
          count_(count),
          other_(rank < surplus_ ? count : count / 2 + 1) {}

    Result<void> run() {
        if (rank_ >= paired_) {
            const std::uint32_t partner = rank_ - paired_;
            if (auto ok = exchange(partner, {0, count_}, {}, nullptr); !ok) return ok;
            return exchange(partner, {}, {0, count_}, data_);
        }
        if (rank_ < surplus_)
            if (auto ok = take_surplus(); !ok) return ok;
        if (auto ok = halve(); !ok) return ok;
        if (auto ok = gather(); !ok) return ok;
        if (rank_ < surplus_) return exchange(rank_ + paired_, {0, count_}, {}, nullptr);
        return {};
    }

private:
    Result<void> messages(const Send& send, const Receive& receive) {
        auto pending = group_.start({&send, send.bytes != 0 ? 1U : 0U},
                                    {&receive, receive.bytes != 0 ? 1U : 0U});
        if (!pending) return std::unexpected(pending.error());
        return (*pending)->wait();
    }

    /// Sends a chunk of this rank's data and receives another one of the peer's.
    Result<void> exchange(std::uint32_t peer, Chunk sent, Chunk received, T* to) {
        return messages({peer, data_ + sent.at, sent.count * sizeof(T)},
                        {peer, to, received.count * sizeof(T)});
    }

    Result<void> take_surplus() {
        const Chunk all{0, count_};
        if (auto ok = exchange(rank_ + paired_, {}, all, other_.data()); !ok) return ok;
        combine(data_, data_, other_.data(), count_, dots_of(data_, other_.data(), count_));
        return {};
    }

    /// Combines pairs of groups of ranks: before, each group has its gradient spread over its
    /// ranks; afterwards the combined gradient is spread over the ranks of both.
    Result<void> halve() {
        Chunk mine{0, count_};
        for (std::uint32_t distance = 1; distance < paired_; distance *= 2) {
            const std::uint32_t peer = rank_ ^ distance;
            const bool lower = rank_ < peer;
            const std::size_t half = mine.count / 2;
            const Chunk first{mine.at, half};
            const Chunk second{mine.at + half, mine.count - half};
            wholes_.push_back(mine);
            mine = lower ? first : second;
            if (auto ok = exchange(peer, lower ? second : first, mine, other_.data()); !ok)
                return ok;
            T* own = data_ + mine.at;
            const T* a = lower ? own : other_.data();
            const T* b = lower ? other_.data() : own;
            Dots dots = dots_of(a, b, mine.count);
            if (auto ok = add_up(dots, distance); !ok) return ok;
            combine(own, a, b, mine.count, dots);
        }
        mine_ = mine;
        return {};
    }

    /// Sums over the 2 * distance ranks that share a pair of gradients. Both ranks of every pair
    /// add the same two numbers, so all get the same bits.
    Result<void> add_up(Dots& dots, std::uint32_t distance) {
        for (std::uint32_t step = 1; step <= distance; step *= 2) {
            const std::uint32_t peer = rank_ ^ step;
            Dots theirs{};
            auto ok =
                messages({peer, dots.data(), sizeof dots}, {peer, theirs.data(), sizeof dots});
            if (!ok) return ok;
            for (std::size_t k = 0; k < dots.size(); ++k) dots[k] += theirs[k];
        }
        return {};
    }

    /// Reverses halve(): ranks exchange parts until each has the whole.
    Result<void> gather() {
        for (std::uint32_t distance = paired_ / 2; distance > 0; distance /= 2) {
            const Chunk whole = wholes_.back();
            wholes_.pop_back();
            const Chunk rest{mine_.at == whole.at ? mine_.end() : whole.at,
                             whole.count - mine_.count};
            auto ok = exchange(rank_ ^ distance, mine_, rest, data_ + rest.at);
            if (!ok) return ok;
            mine_ = whole;
        }
        return {};
    }

    Group& group_;
    const std::uint32_t rank_;
    const std::uint32_t paired_;   ///< the largest power of two of ranks
    const std::uint32_t surplus_;  ///< ranks behind them
    T* data_;
    const std::size_t count_;
    std::vector<T> other_;  ///< what another rank has
    std::vector<Chunk> wholes_;
    Chunk mine_;
};

template <class T>
Result<void> reduce_as(Group& group, std::uint32_t rank, std::uint32_t size, const void* in,
                       void* out, std::size_t count) {
    if (in != out) std::memcpy(out, in, count * sizeof(T));
    return Adasum<T>(group, rank, size, static_cast<T*>(out), count).run();
}

Result<void> reduce_halves(Group& group, std::uint32_t rank, std::uint32_t size, const void* in,
                           void* out, std::size_t count, Format format) {
    std::vector<float> values(count);
    decode(format, static_cast<const std::byte*>(in), count, values.data());
    if (auto ok = Adasum<float>(group, rank, size, values.data(), count).run(); !ok) return ok;
    encode(format, Rounding::nearest, 0, values.data(), count, static_cast<std::byte*>(out));
    return {};
}

}  // namespace

Result<void> adasum_allreduce(Group& group, std::uint32_t rank, std::uint32_t size, const void* in,
                              void* out, std::size_t count, DType type) {
    if (!is_float(type))
        return fail(Errc::invalid_input, "Adasum is for floating point, not {}", name_of(type));
    if (count == 0) return {};
    if (size == 1) {
        std::memmove(out, in, count * bytes_of(type));
        return {};
    }
    const DefaultArithmetic arithmetic;
    switch (type) {
        case DType::f32:
            return reduce_as<float>(group, rank, size, in, out, count);
        case DType::f64:
            return reduce_as<double>(group, rank, size, in, out, count);
        case DType::f16:
            return reduce_halves(group, rank, size, in, out, count, Format::f16);
        default:
            return reduce_halves(group, rank, size, in, out, count, Format::bf16);
    }
}

}  // namespace dtrun::collectives
