#include "collectives/dtrun/group.h"

#include "collectives/first_loss.h"

#include <utility>

namespace dtrun::collectives::over_dtrun {
namespace {

/// Two small numbers of a call as one.
template <class A, class B>
constexpr std::uint64_t both(A a, B b) {
    return static_cast<std::uint64_t>(a) << 32 | static_cast<std::uint64_t>(b);
}

}  // namespace

Result<std::unique_ptr<Group>> connect(const GroupSpec& spec) {
    auto all = over_tcp::connect_tcp(spec);
    if (!all) return std::unexpected(all.error());
    return std::make_unique<DtrunGroup>(spec, std::move(*all));
}

DtrunGroup::DtrunGroup(const GroupSpec& spec, std::unique_ptr<over_tcp::TcpGroup> all)
    : spec_(spec), all_(std::move(all)), topology_(Topology::apart(spec.rank, spec.size)) {}

Result<void> DtrunGroup::arrange(const Arrangement& arrangement) {
    topology_ = arrangement.topology;
    host_ = arrangement.host.get();
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

GroupFacts DtrunGroup::facts() const {
    GroupFacts facts = all_->facts();
    if (way_ == Way::memory) facts.transport = "shared memory";
    if (way_ == Way::both) {
        facts.transport = "shared memory and " + facts.transport;
        facts.details.emplace_back(
            "levels", fmt::format("{} hosts, {} rails", topology_.hosts(), topology_.rails()));
    }
    if (const auto* parts = host_ != nullptr ? host_->machine_parts() : nullptr)
        facts.details.emplace_back(
            "parts of this machine",
            fmt::format("{}, {} ranks on each", parts->parts(), parts->ranks_of_part()));
    return facts;
}

void DtrunGroup::abort() noexcept {
    aborted_ = true;
    end_parts();
}

void DtrunGroup::end_parts() noexcept {
    if (host_ != nullptr) host_->abort();
    if (rail_ != nullptr) rail_->abort();
    all_->abort();
}

Error DtrunGroup::failed(const Error& error) {
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

std::optional<std::uint32_t> DtrunGroup::who_was_lost() const {
    if (host_ != nullptr)
        if (const auto place = host_->lost()) return topology_.ranks_of(topology_.host())[*place];
    // While it works in the background, it is not to be asked.
    if (rail_ != nullptr && !background_.pending())
        if (const auto host = rail_->lost()) return topology_.ranks_of(*host)[topology_.place()];
    return all_->lost();
}

Result<void> DtrunGroup::allreduce(const void* in, void* out, std::size_t count, DType type,
                                   Reduce reduce) {
    return run(Operation::allreduce, count, both(type, reduce), [&] {
        if (way_ == Way::memory) return host_->allreduce(in, out, count, type, reduce);
        if (way_ == Way::tcp) return all_->allreduce(in, out, count, type, reduce);
        // Between hosts, small arrays take a few steps whatever they are; large ones are worth cutting up.
        constexpr std::size_t kSmallBytesMax = 64UL << 10;
        if (count * bytes_of(type) <= kSmallBytesMax)
            return allreduce_small(in, out, count, type, reduce);
        return allreduce_large(in, out, count, type, reduce);
    });
}

Result<void> DtrunGroup::allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce) {
    std::size_t count = 0;
    for (const Array& array : arrays) count += array.count;
    return run(Operation::allreduce_many, count, both(type, reduce), [&] {
        if (way_ == Way::memory) return host_->allreduce_many(arrays, type, reduce);
        return allreduce_arrays(arrays, type, reduce);
    });
}

Result<void> DtrunGroup::reduce(const void* in, void* out, std::size_t count, DType type,
                                Reduce reduce, std::uint32_t root) {
    return run(Operation::reduce, count, both(type, reduce) + (std::uint64_t{root} << 8), [&] {
        if (way_ == Way::memory)
            return host_->reduce(in, out, count, type, reduce, topology_.place_of(root));
        return all_->reduce(in, out, count, type, reduce, root);
    });
}

Result<void> DtrunGroup::reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                        Reduce reduce) {
    return run(Operation::reduce_scatter, count, both(type, reduce), [&] {
        if (way_ == Way::memory) return host_->reduce_scatter(in, out, count, type, reduce);
        if (way_ == Way::tcp) return all_->reduce_scatter(in, out, count, type, reduce);
        return reduce_scatter_levels(in, out, count, type, reduce);
    });
}

Result<void> DtrunGroup::broadcast(void* data, std::size_t bytes, std::uint32_t root) {
    return run(Operation::broadcast, bytes, root, [&] {
        if (way_ == Way::memory) return host_->broadcast(data, bytes, topology_.place_of(root));
        if (way_ == Way::tcp) return all_->broadcast(data, bytes, root);
        return broadcast_levels(data, bytes, root);
    });
}

Result<void> DtrunGroup::allgather(const void* in, void* out, std::size_t bytes) {
    const std::vector<std::size_t> all(spec_.size, bytes);
    return allgatherv(in, out, all);
}

Result<void> DtrunGroup::allgatherv(const void* in, void* out, std::span<const std::size_t> bytes) {
    if (bytes.size() != spec_.size)
        return fail(Errc::invalid_input, "{} sizes for {} ranks", bytes.size(), spec_.size);
    std::uint64_t sizes = 0;
    for (const std::size_t one : bytes) sizes = sizes * 0x100000001b3ULL + one;
    return run(Operation::allgather, sizes, 0, [&] {
        if (way_ == Way::memory) return host_->allgatherv(in, out, bytes);
        if (way_ == Way::tcp) return all_->allgatherv(in, out, bytes);
        return allgather_levels(in, static_cast<std::byte*>(out), bytes);
    });
}

Result<void> DtrunGroup::gather(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    return run(Operation::gather, bytes, root, [&] {
        if (way_ == Way::memory) return host_->gather(in, out, bytes, topology_.place_of(root));
        return all_->gather(in, out, bytes, root);
    });
}

Result<void> DtrunGroup::scatter(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    return run(Operation::scatter, bytes, root, [&] {
        if (way_ == Way::memory) return host_->scatter(in, out, bytes, topology_.place_of(root));
        return all_->scatter(in, out, bytes, root);
    });
}

Result<void> DtrunGroup::alltoall(const void* in, void* out, std::size_t bytes) {
    return run(Operation::alltoall, bytes, 0, [&] {
        if (way_ == Way::memory) return host_->alltoall(in, out, bytes);
        return all_->alltoall(in, out, bytes);
    });
}

Result<void> DtrunGroup::barrier() {
    return run(Operation::barrier, 0, 0, [&] {
        if (way_ == Way::memory) return host_->barrier();
        if (way_ == Way::tcp) return all_->barrier();
        return barrier_levels();
    });
}

Result<std::unique_ptr<Pending>> DtrunGroup::start(std::span<const Send> sends,
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
        Told(DtrunGroup& group, std::unique_ptr<Pending> inner)
            : group_(group), inner_(std::move(inner)) {}
        void poll() override { inner_->poll(); }
        Result<void> wait() override {
            auto done = inner_->wait();
            if (done) return done;
            return std::unexpected(group_.failed(done.error()));
        }

    private:
        DtrunGroup& group_;
        std::unique_ptr<Pending> inner_;
    };
    return std::make_unique<Told>(*this, std::move(*started));
}

}  // namespace dtrun::collectives::over_dtrun
