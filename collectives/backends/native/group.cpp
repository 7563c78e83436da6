#include "collectives/backends/native/group.h"

#include "collectives/backends/first_loss.h"

#include <utility>

namespace dtrun::collectives::native {
Result<std::unique_ptr<Group>> connect(const GroupSpec& spec) {
    auto all = over_tcp::connect_tcp(spec);
    if (!all) return std::unexpected(all.error());
    return std::make_unique<NativeGroup>(spec, std::move(*all));
}

NativeGroup::NativeGroup(const GroupSpec& spec, std::unique_ptr<over_tcp::TcpGroup> all)
    : spec_(spec), all_(std::move(all)), topology_(Topology::apart(spec.rank, spec.size)) {}

Result<void> NativeGroup::set_topology(const HostTopology& host_topology) {
    topology_ = host_topology.topology;
    host_ = host_topology.host.get();
    why_apart_ = host_topology.why_apart;
    way_ = topology_.is_apart() ? Way::tcp : topology_.one_host() ? Way::memory : Way::both;
    if (way_ != Way::both || topology_.place() >= topology_.rails()) return {};
    GroupSpec rail = spec_;
    rail.rank = topology_.host();
    rail.size = topology_.hosts();
    rail.members.clear();
    for (std::uint32_t host = 0; host < topology_.hosts(); ++host)
        rail.members.push_back(spec_.members[topology_.ranks_of(host)[topology_.place()]]);
    rail.prefix = fmt::format("{}rail/{}/", spec_.prefix, topology_.place());
    auto connected = over_tcp::connect_tcp(rail);
    if (!connected) return std::unexpected(failed(connected.error()));
    rail_ = std::move(*connected);
    return {};
}

GroupFacts NativeGroup::facts() const {
    GroupFacts facts = all_->facts();
    if (way_ == Way::memory) facts.transport = "shared memory";
    if (way_ == Way::both) {
        facts.transport = "shared memory and " + facts.transport;
        facts.details.emplace_back(
            "levels", fmt::format("{} hosts, {} rails", topology_.hosts(), topology_.rails()));
    }
    if (!why_apart_.empty()) facts.details.emplace_back("shared memory", "no: " + why_apart_);
    if (const auto* parts = host_ != nullptr ? host_->machine_parts() : nullptr)
        facts.details.emplace_back(
            "parts of this machine",
            fmt::format("{}, {} ranks on each", parts->parts(), parts->ranks_of_part()));
    return facts;
}

void NativeGroup::abort() noexcept {
    aborted_ = true;
    end_parts();
}

void NativeGroup::end_parts() noexcept {
    if (host_ != nullptr) host_->abort();
    if (rail_ != nullptr) rail_->abort();
    all_->abort();
}

Error NativeGroup::failed(const Error& error) {
    if (error_) return *error_;
    std::optional<std::uint32_t> broken;
    if (!aborted_) broken = who_was_lost();
    if (aborted_) {
        error_ = Error{Errc::cancelled, "aborted"};
    } else if (error.code == Errc::closed && broken) {
        lost_ = first_loss(*spec_.store, spec_.prefix + "lost", spec_.rank, spec_.size, *broken);
        const bool named = error.message.starts_with("lost rank ");
        error_ = Error{Errc::closed,
                       named && lost_ == broken
                           ? error.message
                           : fmt::format("lost rank {}: {}", spec_.members[*lost_], error.message)};
    } else {
        error_ = error;
    }
    end_parts();
    return *error_;
}

std::optional<std::uint32_t> NativeGroup::who_was_lost() const {
    if (host_ != nullptr)
        if (const auto place = host_->lost()) return topology_.ranks_of(topology_.host())[*place];
    // While it works in the background, it is not to be asked.
    if (rail_ != nullptr && !background_.pending())
        if (const auto host = rail_->lost()) return topology_.ranks_of(*host)[topology_.place()];
    return all_->lost();
}

/// An operation begins, of which all parts are told. \param operation  a digest
void NativeGroup::begin(std::uint64_t operation) {
    const std::uint64_t call =
        (operation ^ (expected_ + ++sequence_ * 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
    if (host_ != nullptr) host_->begin(call);
    if (rail_ != nullptr) rail_->expect(call);
    all_->expect(call);
}

Result<void> NativeGroup::run(const Operation& what) {
    if (error_) return std::unexpected(*error_);
    begin(digest(what));
    const Result<void> done = way_ == Way::memory ? in_memory(what)
                              : way_ == Way::tcp  ? all_->run(what)
                                                  : by_levels(what);
    if (done) return done;
    return std::unexpected(failed(done.error()));
}

Result<void> NativeGroup::in_memory(const Operation& what) {
    using Kind = Operation::Kind;
    const std::size_t bytes = what.bytes();
    switch (what.kind) {
        case Kind::allreduce:
            return host_->allreduce(what.in, what.out, what.count, what.type, what.reduce);
        case Kind::reduce:
            return host_->reduce(what.in, what.out, what.count, what.type, what.reduce,
                                 topology_.place_of(what.root));
        case Kind::reduce_scatter:
            return host_->reduce_scatter(what.in, what.out, what.count, what.type, what.reduce);
        case Kind::broadcast:
            return host_->broadcast(what.out, bytes, topology_.place_of(what.root));
        case Kind::allgather:
        case Kind::allgatherv:
            return host_->allgatherv(what.in, what.out, parts_of(what, spec_.size));
        case Kind::gather:
            return host_->gather(what.in, what.out, bytes, topology_.place_of(what.root));
        case Kind::scatter:
            return host_->scatter(what.in, what.out, bytes, topology_.place_of(what.root));
        case Kind::alltoall:
            return host_->alltoall(what.in, what.out, bytes);
        case Kind::barrier:
            return host_->barrier();
        default:
            return all_->run(what);
    }
}

/// What all hosts need goes through the levels; the rest has one way between any two ranks.
Result<void> NativeGroup::by_levels(const Operation& what) {
    using Kind = Operation::Kind;
    // Between hosts, small arrays take a few steps whatever they are; large ones are worth cutting up.
    constexpr std::size_t kSmallBytesMax = 64UL << 10;
    switch (what.kind) {
        case Kind::allreduce:
            return what.bytes() <= kSmallBytesMax ? allreduce_small(what) : allreduce_large(what);
        case Kind::reduce_scatter:
            return reduce_scatter_levels(what);
        case Kind::broadcast:
            return broadcast_levels(what);
        case Kind::allgather:
        case Kind::allgatherv:
            return allgather_levels(what);
        case Kind::barrier:
            return barrier_levels();
        default:
            return all_->run(what);
    }
}

Result<void> NativeGroup::allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce) {
    if (error_) return std::unexpected(*error_);
    std::size_t count = 0;
    for (const Array& array : arrays) count += array.count;
    begin(~digest(op::allreduce(nullptr, nullptr, count, type, reduce)));
    const Result<void> done = way_ == Way::memory ? host_->allreduce_many(arrays, type, reduce)
                                                  : allreduce_arrays(arrays, type, reduce);
    if (done) return done;
    return std::unexpected(failed(done.error()));
}

Result<std::unique_ptr<Pending>> NativeGroup::start(std::span<const Send> sends,
                                                    std::span<const Receive> receives) {
    if (error_) return std::unexpected(*error_);
    all_->expect(expected_);
    auto started = all_->start(sends, receives);
    if (!started && started.error().code != Errc::invalid_input)
        return std::unexpected(failed(started.error()));
    if (!started) return started;
    /// Tells the group of a message's failure.
    class Told final : public Pending {
    public:
        Told(NativeGroup& group, std::unique_ptr<Pending> inner)
            : group_(group), inner_(std::move(inner)) {}
        void poll() override { inner_->poll(); }
        Result<void> wait() override {
            auto done = inner_->wait();
            if (done) return done;
            return std::unexpected(group_.failed(done.error()));
        }

    private:
        NativeGroup& group_;
        std::unique_ptr<Pending> inner_;
    };
    return std::make_unique<Told>(*this, std::move(*started));
}

}  // namespace dtrun::collectives::native
