#include "tests/collectives/nccl/fake_comm.h"

#include "collectives/codec/numbers.h"
#include "collectives/codec/reduce.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fake {
namespace {

using dtrun::collectives::DType;
using dtrun::collectives::Reduce;

DType dtype_of(NcclType type) {
    switch (type) {
        case NcclType::i8:
            return DType::i8;
        case NcclType::i32:
            return DType::i32;
        case NcclType::i64:
            return DType::i64;
        case NcclType::f16:
            return DType::f16;
        case NcclType::f32:
            return DType::f32;
        case NcclType::f64:
            return DType::f64;
        case NcclType::bf16:
            return DType::bf16;
        case NcclType::u8:
            break;
    }
    return DType::u8;
}

Reduce reduce_of(NcclOp op) {
    switch (op) {
        case NcclOp::product:
            return Reduce::product;
        case NcclOp::max:
            return Reduce::max;
        case NcclOp::min:
            return Reduce::min;
        case NcclOp::average:
            return Reduce::average;
        case NcclOp::sum:
            break;
    }
    return Reduce::sum;
}

/// As NCCL's average does it with halves: 1/n is rounded to the type, too.
void multiply_by_share(std::vector<std::byte>& values, DType type, int size) {
    using namespace dtrun::collectives;
    const bool is_bf16 = type == DType::bf16;
    const auto down = [&](float x) { return is_bf16 ? bf16_of(x) : half_of(x); };
    const auto up = [&](std::uint16_t x) { return is_bf16 ? float_of_bf16(x) : float_of_half(x); };
    const float share = up(down(1.0F / static_cast<float>(size)));
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, values.data() + i, sizeof bits);
        bits = down(up(bits) * share);
        std::memcpy(values.data() + i, &bits, sizeof bits);
    }
}

std::vector<std::byte> sum_of(const std::vector<std::vector<std::byte>>& parts, std::size_t count,
                              DType type, Reduce op) {
    std::vector<std::byte> sum = parts.front();
    for (std::size_t peer = 1; peer < parts.size(); ++peer)
        dtrun::collectives::reduce_into(sum.data(), sum.data(), parts[peer].data(), count, type,
                                        op);
    return sum;
}

/// One collective operation.
class Collective {
public:
    Collective(Shared& shared, const Task& task)
        : shared_(shared),
          mesh_(*shared.mesh),
          task_(task),
          in_(static_cast<const std::byte*>(task.in)),
          out_(static_cast<std::byte*>(task.out)),
          bytes_(task.count * bytes_of(task.type)),
          rank_(mesh_.rank()),
          size_(mesh_.size()) {}

    void run();

private:
    void all_reduce();
    void reduce();
    void reduce_scatter();
    void gather(bool all);
    void scatter();
    void all_to_all();

    std::size_t part(int rank) const { return static_cast<std::size_t>(rank) * bytes_; }
    void exchange(const std::vector<Outgoing>& out, const std::vector<Incoming>& in) {
        mesh_.exchange(out, in, shared_.aborted);
    }
    /// Reduces what each rank has for this one, `own` among it, in order of ranks.
    std::vector<std::byte> combine(const std::vector<Outgoing>& out, const std::byte* own,
                                   std::size_t count, bool receive);
    static void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
        if (to != from && bytes > 0) std::memmove(to, from, bytes);
    }

    Shared& shared_;
    Mesh& mesh_;
    const Task& task_;
    const std::byte* in_;
    std::byte* out_;
    std::size_t bytes_;
    int rank_;
    int size_;
};

std::vector<std::byte> Collective::combine(const std::vector<Outgoing>& out, const std::byte* own,
                                           std::size_t count, bool receive) {
    const std::size_t bytes = count * bytes_of(task_.type);
    std::vector<std::vector<std::byte>> parts(static_cast<std::size_t>(size_));
    std::vector<Incoming> in;
    for (int peer = 0; receive && peer < size_; ++peer) {
        auto& one = parts[static_cast<std::size_t>(peer)];
        one.resize(bytes);
        if (peer != rank_) in.push_back({peer, one.data(), bytes});
    }
    exchange(out, in);
    if (!receive) return {};
    copy(parts[static_cast<std::size_t>(rank_)].data(), own, bytes);
    const DType type = dtype_of(task_.type);
    const Reduce op = reduce_of(task_.op);
    const bool halves = type == DType::f16 || type == DType::bf16;
    if (op == Reduce::average && halves) {
        for (auto& part : parts) multiply_by_share(part, type, size_);
        return sum_of(parts, count, type, Reduce::sum);
    }
    auto sum = sum_of(parts, count, type, op);
    if (op == Reduce::average)
        dtrun::collectives::divide(sum.data(), count, type, static_cast<std::uint32_t>(size_));
    return sum;
}

void Collective::all_reduce() {
    const std::size_t width = bytes_of(task_.type);
    const std::size_t ranks = static_cast<std::size_t>(size_);
    const auto first = [&](int rank) {
        return task_.count * static_cast<std::size_t>(rank) / ranks;
    };
    std::vector<Outgoing> out;
    for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_)
            out.push_back(
                {peer, in_ + first(peer) * width, (first(peer + 1) - first(peer)) * width});
    const std::size_t count = first(rank_ + 1) - first(rank_);
    const auto mine = combine(out, in_ + first(rank_) * width, count, true);
    out.clear();
    std::vector<Incoming> in;
    for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        out.push_back({peer, mine.data(), mine.size()});
        in.push_back({peer, out_ + first(peer) * width, (first(peer + 1) - first(peer)) * width});
    }
    copy(out_ + first(rank_) * width, mine.data(), mine.size());
    exchange(out, in);
}

void Collective::reduce() {
    const bool root = rank_ == task_.peer;
    std::vector<Outgoing> out;
    if (!root) out.push_back({task_.peer, in_, bytes_});
    const auto sum = combine(out, in_, task_.count, root);
    if (root) copy(out_, sum.data(), sum.size());
}

void Collective::reduce_scatter() {
    std::vector<Outgoing> out;
    for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_) out.push_back({peer, in_ + part(peer), bytes_});
    const auto sum = combine(out, in_ + part(rank_), task_.count, true);
    copy(out_, sum.data(), sum.size());
}

void Collective::gather(bool all) {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    const bool receives = all || rank_ == task_.peer;
    for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        if (all || peer == task_.peer) out.push_back({peer, in_, bytes_});
        if (receives) in.push_back({peer, out_ + part(peer), bytes_});
    }
    if (receives) copy(out_ + part(rank_), in_, bytes_);
    exchange(out, in);
}

/// Of the root's parts, or of the same for all.
void Collective::scatter() {
    const bool same = task_.kind == Kind::broadcast;
    const bool root = rank_ == task_.peer;
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (int peer = 0; root && peer < size_; ++peer)
        if (peer != rank_) out.push_back({peer, same ? in_ : in_ + part(peer), bytes_});
    if (root)
        copy(out_, same ? in_ : in_ + part(rank_), bytes_);
    else
        in.push_back({task_.peer, out_, bytes_});
    exchange(out, in);
}

void Collective::all_to_all() {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        out.push_back({peer, in_ + part(peer), bytes_});
        in.push_back({peer, out_ + part(peer), bytes_});
    }
    copy(out_ + part(rank_), in_ + part(rank_), bytes_);
    exchange(out, in);
}

void Collective::run() {
    switch (task_.kind) {
        case Kind::all_reduce:
            return all_reduce();
        case Kind::reduce:
            return reduce();
        case Kind::reduce_scatter:
            return reduce_scatter();
        case Kind::all_gather:
            return gather(true);
        case Kind::gather:
            return gather(false);
        case Kind::broadcast:
        case Kind::scatter:
            return scatter();
        case Kind::all_to_all:
            return all_to_all();
        case Kind::send:
        case Kind::recv:
            break;
    }
}

void do_tasks(Shared& shared, const std::vector<Task>& tasks) {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (const Task& task : tasks) {
        const std::size_t bytes = task.count * bytes_of(task.type);
        if (task.kind == Kind::send)
            out.push_back({task.peer, static_cast<const std::byte*>(task.in), bytes});
        else if (task.kind == Kind::recv)
            in.push_back({task.peer, static_cast<std::byte*>(task.out), bytes});
        else
            Collective(shared, task).run();
    }
    if (!out.empty() || !in.empty()) shared.mesh->exchange(out, in, shared.aborted);
}

void wait_for_abort(const Shared& shared) {
    while (!shared.aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

void State::failed(NcclResult why, const std::string& text) {
    {
        const std::lock_guard lock(mutex_);
        error_ = text;
    }
    result = why;
}

std::string State::error() {
    const std::lock_guard lock(mutex_);
    return error_;
}

void perform(State& state, const std::vector<Task>& tasks) {
    Shared& shared = *state.shared;
    const bool counts = tasks.front().count > 0;  // not what belongs to making a communicator
    const int operation = counts ? ++shared.operations : 0;
    try {
        if (wanted("FAKE_NCCL_STALL", state.rank, operation)) return wait_for_abort(shared);
        if (wanted("FAKE_NCCL_DIE", state.rank, operation)) shared.mesh->hang_up();
        do_tasks(shared, tasks);
    } catch (const Aborted&) {
    } catch (const Broken& broken) {
        state.failed(broken.rank < 0 ? NcclResult::internal_error : NcclResult::remote_error,
                     broken.what());
        wait_for_abort(shared);
    }
}

bool wanted(const char* name, int rank, int operation) {
    const char* const value = std::getenv(name);
    int of_rank = -1;
    int at = -1;
    return value != nullptr && std::sscanf(value, "%d:%d", &of_rank, &at) == 2 && of_rank == rank &&
           at == operation;
}

std::size_t bytes_of(NcclType type) {
    return dtrun::collectives::bytes_of(dtype_of(type));
}

}  // namespace fake
