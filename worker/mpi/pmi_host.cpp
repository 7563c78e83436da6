#include "worker/mpi/pmi_host.h"

#include "base/log.h"
#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/rank_messages.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun::mpi {
namespace {

constexpr const char* kBarrierFence = "dtrun/pmi";
constexpr const char* kRingFence = "dtrun/pmi/ring";
/// MPICH reads lines of 1024 bytes, and this many are around the value.
constexpr std::size_t kMappingBytesMax = 1024 - 64;
constexpr std::size_t kAttributesMax = 65'536;

std::string mapping_of(const std::vector<RankBlock>& map) {
    std::string text = "(vector";
    for (const RankBlock& block : map)
        text += fmt::format(",({},{},{})", block.first_node, block.nodes, block.ranks);
    text += ')';
    return text;
}

}  // namespace

PmiHost::PmiHost(MpiWorld world, MpiMode mode, MpiNetwork& network, MpiObserver& observer,
                 std::function<void()> fence_failed)
    : world_(std::move(world)),
      mode_(mode),
      network_(network),
      observer_(observer),
      fence_failed_(std::move(fence_failed)),
      kvs_name_(fmt::format("kvs_{}_{}", world_.job, world_.generation)),
      process_mapping_(mapping_of(world_.rank_map)),
      table_(world_.node_rank) {
    if (process_mapping_.size() <= kMappingBytesMax) return;
    log::debug(
        "PMI: a process mapping of {} bytes is too long for MPICH, which then compares the "
        "hosts' names",
        process_mapping_.size());
    process_mapping_.clear();
}

std::string PmiHost::ranks_to_hosts() const {
    std::vector<std::string> ranks(world_.node_names.size());
    for (std::size_t rank = 0; rank < world_.node_of_rank.size(); ++rank)
        if (world_.node_of_rank[rank] < ranks.size())
            ranks[world_.node_of_rank[rank]] += fmt::format("{},", rank);
    std::string hosts;
    std::size_t count = 0;
    for (std::size_t node = 0; node < ranks.size(); ++node) {
        if (ranks[node].empty()) continue;
        const std::string& name = world_.node_names[node];
        hosts += fmt::format("{} {} {} ", name.size(), name, ranks[node]);
        ++count;
    }
    hosts += '\n';
    return fmt::format("put_ranks2hosts {} {}\n{}", hosts.size() + 1, count, hosts);
}

void PmiHost::join(PmiMember& member) {
    members_.insert(&member);
}

void PmiHost::leave(PmiMember& member) {
    members_.erase(&member);
    for (Gathering* gathering : {&barrier_, &ring_}) gathering->in.erase(&member);
    if (!ring_.under_way) ring_ends_.erase(member.rank());
}

/// \return whether all ranks of this host are in now
bool PmiHost::enter(Gathering& gathering, PmiMember& member) {
    if (given_up_) {
        member.give_up();
        return false;
    }
    gathering.in.insert(&member);
    return !gathering.under_way && gathering.in.size() == world_.ranks.size();
}

void PmiHost::enter_barrier(PmiMember& member) {
    if (enter(barrier_, member))
        fence(barrier_, kBarrierFence, table_.take_new(), &PmiHost::barrier_passed);
}

void PmiHost::enter_ring(PmiMember& member, std::string left, std::string right) {
    ring_ends_[member.rank()] = {std::move(left), std::move(right)};
    if (!enter(ring_, member)) return;
    Bytes bytes;
    PackWriter out(bytes);
    out.array(static_cast<std::uint32_t>(3 * ring_ends_.size()));
    for (const auto& [rank, ends] : ring_ends_) {
        out.uint(rank);
        out.bin(ends.left);
        out.bin(ends.right);
    }
    ring_ends_.clear();
    fence(ring_, kRingFence, std::move(bytes), &PmiHost::ring_closed);
}

void PmiHost::fence(Gathering& gathering, const char* name, std::string bytes,
                    void (PmiHost::*passed)(const std::vector<std::string>& parts)) {
    gathering.under_way = true;
    network_.fence(name, std::move(bytes),
                   [this, &gathering, name, passed,
                    alive = std::weak_ptr<char>(alive_)](Result<std::vector<std::string>> parts) {
                       if (alive.expired()) return;
                       if (parts) {
                           gathering.under_way = false;
                           return (this->*passed)(*parts);
                       }
                       log::debug("PMI: fence {}: {}", name, parts.error().message);
                       fence_failed_();
                   });
}

void PmiHost::barrier_passed(const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
        if (const auto merged = table_.merge(part); !merged)
            return observer_.mpi_refused(kNoRank, "PMI: " + merged.error().message);
    // A member that is let go may enter the next barrier at once.
    for (PmiMember* member : std::exchange(barrier_.in, {})) member->barrier_passed();
}

void PmiHost::ring_closed(const std::vector<std::string>& parts) {
    std::map<std::uint64_t, RingEnds> ends;
    for (const std::string& part : parts) {
        PackReader in(part);
        for (std::uint32_t left = in.array() / 3; left > 0 && in.ok(); --left) {
            const std::uint64_t rank = in.uint();
            RingEnds& at = ends[rank];
            at.left = in.bin();
            at.right = in.bin();
        }
    }
    for (PmiMember* member : std::exchange(ring_.in, {})) {
        const auto at = ends.find(member->rank());
        if (at == ends.end()) continue;
        const auto before = at == ends.begin() ? std::prev(ends.end()) : std::prev(at);
        const auto after = std::next(at) == ends.end() ? ends.begin() : std::next(at);
        member->ring_closed({member->rank(), before->second.right, after->second.left});
    }
}

const std::string* PmiHost::attribute(std::string_view key) const {
    const auto at = attributes_.find(key);
    return at == attributes_.end() ? nullptr : &at->second;
}

Result<void> PmiHost::put_attribute(std::string_view key, std::string_view value) {
    if (key.empty() || key.size() > PmiTable::kKeyBytesMax ||
        value.size() > PmiTable::kValueBytesMax || attributes_.size() >= kAttributesMax)
        return fail(Errc::invalid_input, "an attribute that is too long, or one too many");
    attributes_.insert_or_assign(std::string(key), std::string(value));
    const std::set<PmiMember*> members = members_;
    for (PmiMember* member : members) member->attribute_put(key, value);
    return {};
}

void PmiHost::give_up() {
    given_up_ = true;
    for (Gathering* gathering : {&barrier_, &ring_})
        for (PmiMember* member : std::exchange(gathering->in, {})) member->give_up();
}

void PmiHost::spawn_refused(std::uint32_t rank) {
    if (std::exchange(spawn_refused_, true)) return;
    observer_.mpi_spawn_refused(Rank{rank});
}

}  // namespace dtrun::mpi
