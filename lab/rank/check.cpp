#include "lab/rank/check.h"

#include "collectives/codec/format_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace dtrun::lab::rank {

namespace {

/// Numbers that are the same on every machine, unlike those of <random>'s distributions
/// (SplitMix64, Steele et al. 2014).
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
        return mixed ^ (mixed >> 31);
    }
    /// 0 <= number < limit
    std::uint32_t below(std::uint32_t limit) {
        return static_cast<std::uint32_t>(((next() >> 32) * limit) >> 32);
    }
    float uniform(float low, float high) {
        return low + (high - low) * (static_cast<float>(next() >> 40) * 0x1p-24f);
    }

private:
    std::uint64_t state_;
};

template <class T>
void store_as(std::span<const float> values, std::byte* out) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        T value;
        if constexpr (std::is_integral_v<T>)
            value = static_cast<T>(static_cast<std::int64_t>(values[i]));  // wraps around
        else
            value = values[i];
        std::memcpy(out + i * sizeof(T), &value, sizeof value);
    }
}

void store(DType type, std::span<const float> values, std::byte* out) {
    switch (type) {
        case DType::f32:
            return store_as<float>(values, out);
        case DType::f64:
            return store_as<double>(values, out);
        case DType::f16:
            return encode(Format::f16, collectives::Rounding::nearest, 0, values.data(),
                          values.size(), out);
        case DType::bf16:
            return encode(Format::bf16, collectives::Rounding::nearest, 0, values.data(),
                          values.size(), out);
        case DType::i8:
            return store_as<std::int8_t>(values, out);
        case DType::u8:
            return store_as<std::uint8_t>(values, out);
        case DType::i32:
            return store_as<std::int32_t>(values, out);
        case DType::i64:
            return store_as<std::int64_t>(values, out);
    }
}

template <class T>
double load_as(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return static_cast<double>(value);
}

double load(DType type, const std::byte* from) {
    float half = 0;
    switch (type) {
        case DType::f32:
            return load_as<float>(from);
        case DType::f64:
            return load_as<double>(from);
        case DType::f16:
            decode(Format::f16, from, 1, &half);
            break;
        case DType::bf16:
            decode(Format::bf16, from, 1, &half);
            break;
        case DType::i8:
            return load_as<std::int8_t>(from);
        case DType::u8:
            return load_as<std::uint8_t>(from);
        case DType::i32:
            return load_as<std::int32_t>(from);
        case DType::i64:
            return load_as<std::int64_t>(from);
    }
    return half;
}

/// Fills `out` with repetitions of `period`.
void repeat(std::span<const std::byte> period, std::span<std::byte> out) {
    const std::size_t first = std::min(period.size(), out.size());
    std::memcpy(out.data(), period.data(), first);
    for (std::size_t done = first; done < out.size();) {
        const std::size_t now = std::min(done, out.size() - done);  // doubles what is there
        std::memcpy(out.data() + done, out.data(), now);
        done += now;
    }
}

/// By how much the compressed sum of numbers between -1 and 1 may be wrong. Every rank's are
/// rounded, and the sum once more; a ring of 16-bit numbers rounds it at every rank instead.
/// \param magnitudes  sum of the magnitudes of the numbers
double tolerance(Format format, double magnitudes, std::uint32_t ranks) {
    constexpr double kRoundedAlready = 1.1;  // the sum that is rounded has rounding errors already
    const collectives::FormatRow& row = row_of(format);
    const bool ring = row.bits == 16;
    const double relative = row.relative_error * magnitudes * (ring ? ranks + 1 : 2);
    return kRoundedAlready * (relative + row.absolute_error * 2 * ranks);
}

}  // namespace

std::vector<float> Check::values(std::uint32_t rank, std::size_t first, std::size_t count) const {
    std::vector<float> values(std::min(count, kPeriod));
    // Sums of up to 256 ranks stay within +-256, where bf16 has every integer.
    const std::uint32_t largest = std::clamp(256 / ranks_, 1u, 8u);
    for (std::size_t i = 0; i < values.size(); ++i) {
        Random random((std::uint64_t{rank} << 32) + (first + i) % kPeriod);
        values[i] = format_ ? random.uniform(-1, 1)
                            : static_cast<float>(random.below(2 * largest + 1)) -
                                  static_cast<float>(largest);
    }
    return values;
}

void Check::fill(const Extent& extent, std::span<std::byte> in) const {
    if (extent.in == 0) return;
    const std::vector<float> period = values(rank_, 0, extent.in);
    std::vector<std::byte> stored(period.size() * bytes_of(type_));
    store(type_, period, stored.data());
    repeat(stored, in.first(extent.in * bytes_of(type_)));
}

void Check::spoil(std::span<std::byte> out) {
    std::ranges::fill(out, std::byte{0xa5});
}

Check::Verdict Check::compare(const Extent& extent, std::span<const std::byte> out) const {
    Verdict verdict;
    const bool only_root = op_ == CollectiveOp::reduce || op_ == CollectiveOp::gather;
    if (extent.out == 0 || (only_root && rank_ != 0)) return verdict;
    const std::span<const std::byte> result = out.first(extent.out * bytes_of(type_));
    if (row_of(op_).reduces)
        compare_sum(extent, result, verdict);
    else
        compare_copy(extent, result, verdict);
    return verdict;
}

/// Compares a result whose parts are copies of ranks' data.
void Check::compare_copy(const Extent& extent, std::span<const std::byte> out,
                         Verdict& verdict) const {
    const std::size_t part = extent.count;
    const std::size_t own = rank_ * part;
    const auto from = [&](std::uint32_t rank, std::size_t first) {
        const std::size_t place = extent.out == part ? 0 : rank * part;
        compare_run(values(rank, first, part), {},
                    out.subspan(place * bytes_of(type_), part * bytes_of(type_)), verdict);
    };
    if (op_ == CollectiveOp::broadcast) return from(0, 0);
    if (op_ == CollectiveOp::scatter) return from(0, own);
    if (op_ == CollectiveOp::sendrecv) return from((rank_ + ranks_ - 1) % ranks_, 0);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank)
        from(rank, op_ == CollectiveOp::alltoall ? own : 0);
}

void Check::compare_sum(const Extent& extent, std::span<const std::byte> out,
                        Verdict& verdict) const {
    const std::size_t first = op_ == CollectiveOp::reduce_scatter ? rank_ * extent.count : 0;
    std::vector<double> sums(std::min(extent.count, kPeriod));
    std::vector<double> magnitudes(sums.size());
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        const std::vector<float> given = values(rank, first, extent.count);
        for (std::size_t i = 0; i < sums.size(); ++i) {
            sums[i] += given[i];
            magnitudes[i] += std::abs(given[i]);
        }
    }
    std::vector<float> tolerances;
    for (std::size_t i = 0; format_ && i < sums.size(); ++i)
        tolerances.push_back(static_cast<float>(tolerance(*format_, magnitudes[i], ranks_)));
    compare_run(std::vector<float>(sums.begin(), sums.end()), tolerances, out, verdict);
}

/// \param expected    all elements that are expected, or kPeriod of them, which repeat
/// \param tolerances  empty: results have to be exact
void Check::compare_run(std::span<const float> expected, std::span<const float> tolerances,
                        std::span<const std::byte> out, Verdict& verdict) const {
    if (expected.empty()) return;
    const std::size_t size = bytes_of(type_);
    std::vector<std::byte> exact(expected.size() * size);
    store(type_, expected, exact.data());
    const double squared =
        std::inner_product(expected.begin(), expected.end(), expected.begin(), 0.0);
    for (std::size_t done = 0; done < out.size(); done += exact.size()) {
        const std::size_t now = std::min(exact.size(), out.size() - done);
        const std::byte* const here = out.data() + done;
        if (tolerances.empty() && std::memcmp(here, exact.data(), now) == 0) {
            verdict.expected_squared +=
                squared * static_cast<double>(now) / static_cast<double>(exact.size());
            continue;
        }
        for (std::size_t i = 0; i < now / size; ++i) {
            const double wanted = load(type_, exact.data() + i * size);
            const double error = std::abs(load(type_, here + i * size) - wanted);
            const double allowed = tolerances.empty() ? 0 : tolerances[i];
            if (!(error <= allowed)) ++verdict.wrong;
            verdict.error_squared += error * error;
            verdict.expected_squared += wanted * wanted;
        }
    }
}

}  // namespace dtrun::lab::rank
