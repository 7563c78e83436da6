#include "collectives/backends/oneccl/group.h"

#include "collectives/codec/reduce.h"
#include "collectives/quiet_thread.h"

#include <sched.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

namespace dtrun::collectives::oneccl {
namespace {

/// Polls before the thread yields, since the rank that it waits for may need the processor.
constexpr unsigned kAsksInARow = 8;

/// How long ranks wait for each other when a group is closed.
constexpr std::chrono::seconds kCloseWithin{2};

Type type_of(DType type) {
    switch (type) {
        case DType::f32:
            return Type::f32;
        case DType::f64:
            return Type::f64;
        case DType::f16:
            return Type::f16;
        case DType::bf16:
            return Type::bf16;
        case DType::i8:
            return Type::i8;
        case DType::u8:
            return Type::u8;
        case DType::i32:
            return Type::i32;
        case DType::i64:
            break;
    }
    return Type::i64;
}

Op op_of(Reduce reduce) {
    switch (reduce) {
        case Reduce::product:
            return Op::product;
        case Reduce::min:
            return Op::min;
        case Reduce::max:
            return Op::max;
        default:
            return Op::sum;
    }
}

}  // namespace

/// Messages of one start().
class OnecclGroup::Started final : public Pending {
public:
    Started(OnecclGroup& group, std::shared_ptr<OnecclMessages::Batch> batch)
        : group_(group), batch_(std::move(batch)) {}
    ~Started() override { static_cast<void>(wait()); }

    void poll() override {
        if (batch_->left != 0 && !group_.broken_) static_cast<void>(group_.advance());
    }
    Result<void> wait() override {
        if (batch_->left == 0) return {};
        return group_.wait("messages", [this] { return batch_->left == 0; });
    }

private:
    OnecclGroup& group_;
    std::shared_ptr<OnecclMessages::Batch> batch_;
};

OnecclGroup::OnecclGroup(OnecclRuntime& runtime, std::shared_ptr<const Library> library,
                         const GroupSpec& spec, JoinedComm meeting, GroupFacts facts)
    : GroupOfOperations(spec.rank, spec.size),
      runtime_(runtime),
      library_(std::move(library)),
      meeting_(std::move(meeting)),
      facts_(std::move(facts)),
      messages_(
          [this](std::uint32_t peer, void* data, std::size_t bytes, bool send) {
              const auto post = send ? library_->call.send : library_->call.receive;
              return post(data, bytes, Type::u8, static_cast<int>(peer), meeting_.comm,
                          *library_->attributes.message, none_);
          },
          [this](Event& event) { return ended(event); }) {}

/// Ranks meet before they close, since oneCCL would end the processes of ranks that still sign off
/// at rank 0 when it has gone. A communicator that cannot be closed that way is leaked, with what
/// it needs.
OnecclGroup::~OnecclGroup() {
    if (met_at_the_end()) {
        // Closing may write to a rank that has just gone; this thread blocks the signal that this
        // raises.
        quiet_thread([this] {
            const auto turn = runtime_.turn();
            if (turn) library_->call.destroy_communicator(&meeting_.comm);
        }).join();
        return;
    }
    static_cast<void>(new std::pair(std::move(meeting_.kvs), std::move(token_)));
}

bool OnecclGroup::met_at_the_end() {
    if (broken_ || aborted_ || !messages_.idle()) return false;
    const auto deadline = std::chrono::steady_clock::now() + kCloseWithin;
    Event event;
    bool met = false;
    const auto asked = guarded("barrier", [&] {
        if (const auto turn = runtime_.turn()) event = begin_barrier();
        while (event.hidden != nullptr && !met && !aborted_ &&
               std::chrono::steady_clock::now() < deadline) {
            const auto turn = runtime_.turn();
            if (!turn) return;
            met = ended(event);
            if (!met) ::sched_yield();
        }
    });
    return asked && met;
}

// ---- one operation ------------------------------------------------------------------------------

/// Ends oneCCL in this process, since an operation may still be at work on callers' arrays.
std::unexpected<Error> OnecclGroup::broken(Error error) {
    runtime_.give_up();
    messages_.abandon();
    broken_ = std::move(error);
    return std::unexpected(*broken_);
}

bool OnecclGroup::ended(Event& event) const {
    if (!library_->call.test(&event)) return false;
    library_->call.destroy_event(&event);
    event.hidden = nullptr;
    return true;
}

Result<void> OnecclGroup::advance() {
    auto turn = runtime_.turn();
    if (!turn) return std::unexpected(turn.error());
    auto done = guarded("messages", [this] { messages_.advance(); });
    if (!done) return broken({Errc::closed, done.error().message});
    return {};
}

template <class Ended>
Result<void> OnecclGroup::wait(const char* what, Ended ended) {
    if (broken_) return std::unexpected(*broken_);
    while (true) {
        bool done = false;
        {
            const auto turn = runtime_.turn();
            if (!turn) return broken(turn.error());
            auto asked = guarded(what, [&] {
                for (unsigned i = 0; i < kAsksInARow && !done; ++i) {
                    if (!messages_.idle()) messages_.advance();
                    done = ended();
                }
            });
            if (!asked) return broken({Errc::closed, asked.error().message});
        }
        if (done) return {};
        if (aborted_) {
            runtime_.give_up_and_wait();
            return broken({Errc::cancelled, fmt::format("oneccl: {}: abort() was called", what)});
        }
        ::sched_yield();
    }
}

template <class Begin>
Result<void> OnecclGroup::call(const char* what, Begin begin) {
    if (broken_) return std::unexpected(*broken_);
    if (aborted_) return fail(Errc::cancelled, "oneccl: {}: abort() was called", what);
    Event event;
    {
        auto turn = runtime_.turn();
        if (!turn) return std::unexpected(turn.error());
        if (auto begun = guarded(what, [&] { event = begin(); }); !begun)
            return broken(begun.error());
    }
    return wait(what, [&] { return this->ended(event); });
}

Result<std::unique_ptr<Pending>> OnecclGroup::start(std::span<const Send> sends,
                                                    std::span<const Receive> receives) {
    if (broken_) return std::unexpected(*broken_);
    if (aborted_) return fail(Errc::cancelled, "oneccl: messages: abort() was called");
    std::shared_ptr<OnecclMessages::Batch> batch;
    auto turn = runtime_.turn();
    if (!turn) return std::unexpected(turn.error());
    auto begun = guarded("messages", [&] { batch = messages_.start(sends, receives); });
    if (!begun) return broken(begun.error());
    return std::make_unique<Started>(*this, std::move(batch));
}

/// min and max of floats are those of integers in their order: oneCCL's own need not keep NaNs.
Result<void> OnecclGroup::run(const Operation& what) {
    if (row_of(what.kind).reduces)
        if (const StandIn* const keys = ordered_stand_in(what.type, what.reduce))
            return run_by(*keys, *this, keys_, rank_, size_, what);
    return GroupOfOperations::run(what);
}

Result<void> OnecclGroup::barrier(const Operation&) {
    return call("barrier", [this] { return begin_barrier(); });
}

/// Begins an allreduce instead of oneCCL's own barrier, which blocks.
Event OnecclGroup::begin_barrier() {
    return library_->call.allreduce(token_.get(), token_.get(), 1, Type::i32, Op::max,
                                    meeting_.comm, *library_->attributes.allreduce, none_);
}

// ---- reductions ---------------------------------------------------------------------------------

Result<void> OnecclGroup::allreduce(const Operation& what) {
    const std::size_t chunk = kChunkBytes / bytes_of(what.type);
    for (std::size_t first = 0; first < what.count; first += chunk) {
        const std::size_t offset = first * bytes_of(what.type);
        auto done = call("allreduce", [&] {
            return library_->call.allreduce(at_byte(what.in, offset), at_byte(what.out, offset),
                                            std::min(chunk, what.count - first), type_of(what.type),
                                            op_of(what.reduce), meeting_.comm,
                                            *library_->attributes.allreduce, none_);
        });
        if (!done) return done;
    }
    if (what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

Result<void> OnecclGroup::reduce(const Operation& what) {
    const bool is_root = rank_ == what.root;
    const std::size_t chunk = kChunkBytes / bytes_of(what.type);
    for (std::size_t first = 0; first < what.count; first += chunk) {
        const std::size_t offset = first * bytes_of(what.type);
        auto done = call("reduce", [&] {
            return library_->call.reduce(
                at_byte(what.in, offset), is_root ? at_byte(what.out, offset) : nullptr,
                std::min(chunk, what.count - first), type_of(what.type), op_of(what.reduce),
                static_cast<int>(what.root), meeting_.comm, *library_->attributes.reduce, none_);
        });
        if (!done) return done;
    }
    if (is_root && what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

Result<void> OnecclGroup::reduce_scatter(const Operation& what) {
    if (what.count == 0) return {};
    const std::size_t bytes = what.bytes();
    if (bytes > kChunkBytes / size_) {
        for (std::uint32_t root = 0; root < size_; ++root) {
            auto done = reduce(op::reduce(at_byte(what.in, root * bytes), what.out, what.count,
                                          what.type, what.reduce, root));
            if (!done) return done;
        }
        return {};
    }
    auto done = call("reduce-scatter", [&] {
        return library_->call.reduce_scatter(what.in, what.out, what.count, type_of(what.type),
                                             op_of(what.reduce), meeting_.comm,
                                             *library_->attributes.reduce_scatter, none_);
    });
    if (!done) return done;
    if (what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

// ---- data that are only moved -------------------------------------------------------------------

Result<void> OnecclGroup::broadcast(const Operation& what) {
    const std::size_t bytes = what.bytes();
    for (std::size_t first = 0; first < bytes; first += kChunkBytes) {
        auto done = call("broadcast", [&] {
            return library_->call.broadcast(
                at_byte(what.out, first), std::min(kChunkBytes, bytes - first), Type::u8,
                static_cast<int>(what.root), meeting_.comm, *library_->attributes.broadcast, none_);
        });
        if (!done) return done;
    }
    return {};
}

Result<void> OnecclGroup::allgather(const Operation& what) {
    const std::vector<std::size_t> parts = parts_of(what, size_);
    const std::size_t total = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
    if (total == 0) return {};
    if (total > kChunkBytes) return by_messages(what);
    return call("allgather", [&] {
        return library_->call.allgatherv(what.in, parts[rank_], what.out, parts, Type::u8,
                                         meeting_.comm, *library_->attributes.allgatherv, none_);
    });
}

Result<void> OnecclGroup::alltoall(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    if (bytes > kChunkBytes / size_) return by_messages(what);
    return call("all-to-all", [&] {
        return library_->call.alltoall(what.in, what.out, bytes, Type::u8, meeting_.comm,
                                       *library_->attributes.alltoall, none_);
    });
}

}  // namespace dtrun::collectives::oneccl
