#include "lab/rank/sweep.h"

#include "lab/rank/check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

namespace dtrun::lab::rank {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kItersDefault = 20;
constexpr std::size_t kItersMax = 20'000;
/// Calls after which the library goes one way with values that it may compress: docs/decisions/051.
constexpr std::size_t kTrialCalls = 8;

struct Arrays {
    Memory in, out;
    Memory numbers;  ///< of doubles, for what ranks tell each other
};

/// Calls one operation once, on arrays that are ready.
int call(dtrun_comm* comm, CollectiveOp op, DType type, const dtrun_compression* compression,
         std::size_t count, void* in, void* out) {
    const int dtype = static_cast<int>(type);
    switch (op) {
        case CollectiveOp::allreduce:
            return dtrun_allreduce(comm, in, out, count, dtype, DTRUN_SUM, compression);
        case CollectiveOp::allgather:
            return dtrun_allgather(comm, in, out, count, dtype);
        case CollectiveOp::reduce_scatter:
            return dtrun_reduce_scatter(comm, in, out, count, dtype, DTRUN_SUM);
        case CollectiveOp::reduce:
            return dtrun_reduce_to(comm, in, out, count, dtype, DTRUN_SUM, 0);
        case CollectiveOp::broadcast:
            // A broadcast is in place: the root's `in` is sent, other ranks receive into `out`.
            return dtrun_broadcast(comm, dtrun_comm_rank(comm) == 0 ? in : out, count, dtype, 0);
        case CollectiveOp::gather:
            return dtrun_gather(comm, in, out, count, dtype, 0);
        case CollectiveOp::scatter:
            return dtrun_scatter(comm, in, out, count, dtype, 0);
        case CollectiveOp::alltoall:
            return dtrun_alltoall(comm, in, out, count, dtype);
        case CollectiveOp::sendrecv: {
            const std::uint32_t rank = dtrun_comm_rank(comm);
            const std::uint32_t size = dtrun_comm_size(comm);
            return dtrun_sendrecv(comm, in, count, (rank + 1) % size, out, count,
                                  (rank + size - 1) % size, dtype);
        }
        case CollectiveOp::allgatherv:  // is not measured
        case CollectiveOp::barrier:
            break;
    }
    return dtrun_comm_barrier(comm);
}

/// Measures one operation with one type and one compression.
class Measurement {
public:
    Measurement(const SweepOptions& options, const Comm& comm, Arrays& arrays, CollectiveOp op,
                DType type, std::optional<Format> format, bool in_place)
        : options_(options),
          comm_(comm),
          arrays_(arrays),
          op_(op),
          type_(type),
          format_(format),
          in_place_(in_place) {
        if (!format) return;
        compression_.size = sizeof compression_;
        compression_.format = static_cast<int>(*format);
        compression_.policy = options.compress_auto ? 0 : 1;
    }

    /// Every size.
    Result<void> measure_all(const std::function<void(const Row&)>& told) {
        const std::uint32_t ranks = comm_.size();
        const auto fail_at = [&](const Error& error, std::size_t bytes) {
            return fail(error, "{} of {}, {} bytes", name_of(op_), name_of(type_), bytes);
        };
        const std::size_t largest = *std::ranges::max_element(options_.sizes);
        if (auto done = warm_up(extent_of(op_, type_, largest, ranks)); !done)
            return fail_at(done.error(), largest);
        for (const std::size_t bytes : options_.sizes) {
            const Extent extent = extent_of(op_, type_, bytes, ranks);
            const bool too_small = extent.bytes == 0 && bytes > 0;
            if (too_small && op_ != CollectiveOp::barrier) continue;
            const auto row = measure(extent);
            if (!row) return fail_at(row.error(), bytes);
            told(*row);
            if (op_ == CollectiveOp::barrier) break;  // has no size
        }
        return {};
    }

private:
    Result<void> warm_up(const Extent& extent) {
        if (options_.warmup == 0) return {};
        if (in_place_)
            if (auto done = clear(extent); !done) return done;
        const auto each = mean_time(extent, 1);
        if (!each) return std::unexpected(each.error());
        const std::size_t rest = plan_iterations(options_.warmup - 1, options_.seconds / 4, *each);
        if (const auto times = run(extent, rest); !times) return std::unexpected(times.error());
        return {};
    }

    Result<Row> measure(const Extent& extent) {
        const Check check(op_, type_, format_, comm_.rank(), comm_.size());
        // In place, zeros are what is timed: a sum of sums would soon be no number.
        if (auto done = in_place_ ? clear(extent) : prepare(check, extent); !done)
            return std::unexpected(done.error());
        if (format_ && options_.compress_auto)
            if (const auto tried = run(extent, kTrialCalls); !tried)
                return std::unexpected(tried.error());
        const auto first = mean_time(extent, 1);
        if (!first) return std::unexpected(first.error());
        auto times = options_.seconds > 0 ? run_for(extent, *first)
                                          : run(extent, plan_iterations(options_.iters, 0, 0));
        if (!times) return std::unexpected(times.error());
        if (auto done = combine(*times, DTRUN_MAX); !done) return std::unexpected(done.error());
        Row row{op_, type_, format_, extent, times->size(), summarize(*times), in_place_};
        if (!options_.check) return row;
        if (in_place_) {
            if (auto done = prepare(check, extent); !done) return std::unexpected(done.error());
            if (const auto once = run(extent, 1); !once) return std::unexpected(once.error());
        }
        if (auto done = judge(check, row); !done) return std::unexpected(done.error());
        return row;
    }

    /// Seconds per iteration of the slowest rank; all ranks get the same number.
    Result<double> mean_time(const Extent& extent, std::size_t iters) {
        const auto times = run(extent, iters);
        if (!times) return std::unexpected(times.error());
        std::vector<double> mean{0};
        for (const double time : *times) mean[0] += time / static_cast<double>(iters) / 1e6;
        if (auto done = combine(mean, DTRUN_MAX); !done) return std::unexpected(done.error());
        return mean[0];
    }

    /// Runs as many iterations as the time has room for. It does so in rounds, since the time of
    /// one disturbed iteration says little of the others.
    Result<std::vector<double>> run_for(const Extent& extent, double seconds_each) {
        std::vector<double> times;
        double spent = 0;
        const std::size_t most = options_.iters.value_or(kItersMax);
        while (times.size() < most && spent < 0.9 * options_.seconds) {
            const std::size_t fitting =
                plan_iterations(most - times.size(), options_.seconds - spent, seconds_each);
            const auto round = run(extent, std::min(fitting, 5 + 4 * times.size()));
            if (!round) return std::unexpected(round.error());
            times.insert(times.end(), round->begin(), round->end());
            std::vector<double> sum{std::accumulate(times.begin(), times.end(), 0.0) / 1e6};
            if (auto done = combine(sum, DTRUN_MAX); !done) return std::unexpected(done.error());
            spent = sum[0];
            seconds_each = spent / static_cast<double>(times.size());
        }
        return times;
    }

    /// \return microseconds of each iteration on this rank
    Result<std::vector<double>> run(const Extent& extent, std::size_t iters) {
        std::vector<double> times(iters);
        if (auto done = checked(dtrun_comm_barrier(comm_.get())); !done)
            return std::unexpected(done.error());
        for (double& time : times) {
            const Clock::time_point begin = Clock::now();
            const int code = call(comm_.get(), op_, type_, format_ ? &compression_ : nullptr,
                                  extent.count, in_of(extent), out_of(extent));
            time = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
            if (auto done = checked(code); !done) return std::unexpected(done.error());
        }
        return times;
    }

    /// Where a rank's part begins, in bytes: in place, one of input and result is a part of the
    /// other.
    std::size_t part_offset(const Extent& extent) const {
        if (op_ == CollectiveOp::scatter || op_ == CollectiveOp::allreduce ||
            op_ == CollectiveOp::reduce)
            return 0;
        return comm_.rank() * extent.count * bytes_of(type_);
    }
    std::size_t in_offset(const Extent& extent) const {
        return extent.in < extent.out ? part_offset(extent) : 0;
    }
    std::size_t out_offset(const Extent& extent) const {
        return extent.out < extent.in ? part_offset(extent) : 0;
    }
    void* in_of(const Extent& extent) const {
        if (!in_place_) return arrays_.in.data();
        return static_cast<std::byte*>(arrays_.out.data()) + in_offset(extent);
    }
    void* out_of(const Extent& extent) const {
        return static_cast<std::byte*>(arrays_.out.data()) + (in_place_ ? out_offset(extent) : 0);
    }

    /// Fills the one array of an operation in place with zeros.
    Result<void> clear(const Extent& extent) {
        const std::size_t bytes = std::max(extent.in, extent.out) * bytes_of(type_);
        std::ranges::fill(arrays_.out.host().first(bytes), std::byte{0});
        return arrays_.out.push(bytes);
    }

    Result<void> prepare(const Check& check, const Extent& extent) {
        if (in_place_) {
            const std::size_t bytes = std::max(extent.in, extent.out) * bytes_of(type_);
            Check::spoil(arrays_.out.host().first(bytes));
            check.fill(extent, arrays_.out.host().subspan(in_offset(extent)));
            return arrays_.out.push(bytes);
        }
        check.fill(extent, arrays_.in.host());
        const std::size_t out_bytes = extent.out * bytes_of(type_);
        Check::spoil(arrays_.out.host().first(out_bytes));
        if (auto done = arrays_.in.push(extent.in * bytes_of(type_)); !done) return done;
        return arrays_.out.push(out_bytes);
    }

    Result<void> judge(const Check& check, Row& row) {
        // The root's input of a broadcast is its result as well.
        const bool root = op_ == CollectiveOp::broadcast && comm_.rank() == 0;
        const Memory& result = root ? arrays_.in : arrays_.out;
        const std::size_t offset = in_place_ ? out_offset(row.extent) : 0;
        const std::size_t bytes = row.extent.out * bytes_of(type_);
        if (auto done = result.pull(offset + bytes); !done) return done;
        const Check::Verdict verdict = check.compare(row.extent, result.host().subspan(offset));
        std::vector<double> sums{static_cast<double>(verdict.wrong), verdict.error_squared,
                                 verdict.expected_squared};
        if (auto done = combine(sums, DTRUN_SUM); !done) return done;
        row.wrong = static_cast<std::uint64_t>(sums[0]);
        row.rel_err = sums[1] == 0 ? 0 : std::sqrt(sums[1] / sums[2]);
        return {};
    }

    /// Reduces values over all ranks.
    Result<void> combine(std::vector<double>& values, dtrun_reduce reduce) {
        const std::size_t bytes = values.size() * sizeof(double);
        const Memory& numbers = arrays_.numbers;
        std::memcpy(numbers.host().data(), values.data(), bytes);
        if (auto done = numbers.push(bytes); !done) return done;
        if (auto done = checked(dtrun_allreduce(comm_.get(), numbers.data(), numbers.data(),
                                                values.size(), DTRUN_F64, reduce, nullptr));
            !done)
            return done;
        if (auto done = numbers.pull(bytes); !done) return done;
        std::memcpy(values.data(), numbers.host().data(), bytes);
        return {};
    }

    const SweepOptions& options_;
    const Comm& comm_;
    Arrays& arrays_;
    CollectiveOp op_;
    DType type_;
    std::optional<Format> format_;
    bool in_place_;
    dtrun_compression compression_{};
};

/// Allocates arrays once, for the largest operation.
Result<Arrays> allocate(const SweepOptions& options, std::uint32_t ranks, const MemoryKind& kind) {
    std::size_t in_bytes = 0;
    std::size_t out_bytes = 0;
    for (const CollectiveOp op : options.ops)
        for (const DType type : options.dtypes)
            for (const std::size_t bytes : options.sizes) {
                const Extent extent = extent_of(op, type, bytes, ranks);
                in_bytes = std::max(in_bytes, extent.in * bytes_of(type));
                out_bytes = std::max(out_bytes, extent.out * bytes_of(type));
            }
    if (options.in_place) out_bytes = std::max(in_bytes, out_bytes);  // the one array
    auto in = Memory::allocate(kind, in_bytes);
    if (!in) return std::unexpected(in.error());
    auto out = Memory::allocate(kind, out_bytes);
    if (!out) return std::unexpected(out.error());
    auto numbers =
        Memory::allocate(kind, std::max(options.iters.value_or(0), kItersMax) * sizeof(double));
    if (!numbers) return std::unexpected(numbers.error());
    return Arrays{std::move(*in), std::move(*out), std::move(*numbers)};
}

}  // namespace

std::size_t plan_iterations(std::optional<std::size_t> wanted, double seconds,
                            double seconds_each) {
    if (seconds <= 0) return wanted.value_or(kItersDefault);
    const double fitting = seconds / std::max(seconds_each, 1e-9);
    const std::size_t most = wanted.value_or(kItersMax);
    return fitting < static_cast<double>(most)
               ? std::max<std::size_t>(static_cast<std::size_t>(fitting), most > 0 ? 1 : 0)
               : most;
}

bool makes_sense(CollectiveOp op, DType type, std::optional<Format> format, std::uint32_t ranks) {
    if (op == CollectiveOp::sendrecv && ranks == 1) return false;
    return !format || (op == CollectiveOp::allreduce && type == DType::f32);
}

bool has_in_place(CollectiveOp op) {
    return row_of(op).in_place && row_of(op).in != collectives::Extent::none;
}

Result<void> sweep(const SweepOptions& options, const Comm& comm, const MemoryKind& memory,
                   const std::function<void(const Row&)>& told,
                   const std::function<void(const Error&)>& refused) {
    auto arrays = allocate(options, comm.size(), memory);
    if (!arrays) return std::unexpected(arrays.error());
    for (const CollectiveOp op : options.ops)
        for (const DType type : options.dtypes)
            for (const std::optional<Format> format : options.formats) {
                if (!makes_sense(op, type, format, comm.size())) continue;
                if (op == CollectiveOp::barrier && type != options.dtypes.front()) continue;
                for (const bool in_place : {false, true}) {
                    if (in_place && !(options.in_place && has_in_place(op))) continue;
                    Measurement measurement(options, comm, *arrays, op, type, format, in_place);
                    const auto done = measurement.measure_all(told);
                    if (done) continue;
                    // All ranks get the same refusal, after which the communicator still works.
                    if (done.error().code != Errc::invalid_input) return done;
                    refused(done.error());
                    break;
                }
            }
    return {};
}

}  // namespace dtrun::lab::rank
