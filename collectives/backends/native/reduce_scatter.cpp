#include "collectives/backends/native/group.h"
#include "collectives/backends/native/parts.h"
#include "collectives/codec/reduce.h"

#include <algorithm>

namespace dtrun::collectives::native {
namespace {

/// A reduce-scatter between hosts, of some elements of every rank's part at a time: hosts add up theirs in memory,
/// each rail sends to a host what the ranks that it carries there get, and adds up what comes.
class ReduceScatter {
public:
    struct Arrays {
        const std::byte* in;
        std::byte* out;     ///< may be this rank's part of `in`
        std::size_t count;  ///< elements of a part
        DType type;
        Reduce reduce;
    };

    /// \param rail  nullptr: this rank is on none
    ReduceScatter(const Topology& topology, HostGroup* host, Group* rail, const Arrays& arrays,
                  std::vector<std::byte>& room)
        : topology_(topology),
          host_(host),
          rail_(rail),
          arrays_(arrays),
          element_(bytes_of(arrays.type)),
          room_(room) {
        for (std::uint32_t number = 0; number < topology.rails(); ++number)
            carried_.push_back(topology.carried_by(number));
    }

    /// Elements [at, at + n) of every part. Of this rank's own, it writes what it alone has read before.
    Result<void> run(std::size_t at, std::size_t n) {
        at_ = at;
        n_ = n;
        if (auto done = sum_on_host(); !done) return done;
        if (rail_ != nullptr)
            if (auto done = exchange(); !done) return done;
        return take_own();
    }

private:
    /// Where the ranks of a host are among those that a rail carries, in elements.
    Chunk of_host(std::uint32_t host, std::uint32_t rail) const {
        const auto is_there = [&](std::uint32_t rank) { return topology_.host_of(rank) == host; };
        const auto& ranks = carried_[rail];
        const auto first = std::ranges::find_if(ranks, is_there);
        const auto number = static_cast<std::size_t>(std::ranges::count_if(ranks, is_there));
        return {static_cast<std::size_t>(first - ranks.begin()) * n_, number * n_};
    }
    /// The parts that rails carry, one rail behind the other.
    std::vector<Chunk> of_rails() const {
        std::vector<Chunk> chunks;
        std::size_t before = 0;
        for (const auto& ranks : carried_) {
            chunks.push_back({before, ranks.size() * n_});
            before += chunks.back().count;
        }
        return chunks;
    }

    Result<void> sum_on_host();
    Result<void> exchange();
    Result<void> take_own();

    const Topology& topology_;
    HostGroup* const host_;
    Group* const rail_;
    const Arrays arrays_;
    const std::size_t element_;
    std::vector<std::vector<std::uint32_t>> carried_;  ///< by rail
    std::vector<std::byte>& room_;
    std::size_t at_ = 0;
    std::size_t n_ = 0;
    std::byte* sums_ = nullptr;     ///< of this host, for the ranks that this rail carries
    std::byte* results_ = nullptr;  ///< sums of all hosts for this host's ranks among those
};

Result<void> ReduceScatter::sum_on_host() {
    const std::vector<Chunk> chunks = of_rails();
    // Elements of what rails carry, which lie in the parts of one or several ranks.
    const auto fill = [&](std::size_t from, std::size_t number, std::byte* to) {
        std::uint32_t rail = 0;
        while (rail + 1 < chunks.size() && from >= chunks[rail + 1].at) ++rail;
        for (std::size_t done = 0; done < number;) {
            const std::size_t offset = from + done - chunks[rail].at;
            const std::size_t part = carried_[rail][offset / n_] * arrays_.count;
            const std::size_t here = std::min(number - done, n_ - offset % n_);
            copy_bytes(to + done * element_, arrays_.in + (part + at_ + offset % n_) * element_,
                       here * element_);
            done += here;
        }
    };
    if (rail_ != nullptr) {
        const std::size_t own = chunks[topology_.place()].count;
        const std::size_t mine = of_host(topology_.host(), topology_.place()).count;
        const std::size_t come = (topology_.hosts() - 1) * mine;
        room_.resize(std::max(room_.size(), (own + come) * element_));
        sums_ = room_.data();
    }
    if (host_ != nullptr)
        return host_->sum_chunks(chunks, arrays_.type, without_average(arrays_.reduce), fill,
                                 sums_);
    fill(chunks[0].at, chunks[0].count, sums_);
    return {};
}

/// Sends each other host the sums for its ranks, and adds up what comes for this one's.
Result<void> ReduceScatter::exchange() {
    const std::uint32_t hosts = topology_.hosts();
    const std::uint32_t me = topology_.host();
    const Chunk mine = of_host(me, topology_.place());
    const std::size_t bytes = mine.count * element_;
    results_ = sums_ + mine.at * element_;
    std::byte* const come = sums_ + carried_[topology_.place()].size() * n_ * element_;
    const auto from_host = [&](std::uint32_t host) {
        return come + (host < me ? host : host - 1) * bytes;
    };
    std::vector<Send> sends;
    std::vector<Receive> receives;
    // Each rank begins with another peer, so that not all wait for one link.
    for (std::uint32_t turn = 1; turn < hosts; ++turn) {
        const std::uint32_t to = (me + turn) % hosts;
        const std::uint32_t from = (me + hosts - turn) % hosts;
        const Chunk theirs = of_host(to, topology_.place());
        sends.push_back({to, sums_ + theirs.at * element_, theirs.count * element_});
        receives.push_back({from, from_host(from), bytes});
    }
    auto pending = rail_->start(sends, receives);
    if (!pending) return std::unexpected(pending.error());
    if (auto done = (*pending)->wait(); !done) return done;
    for (std::uint32_t host = 0; host < hosts; ++host)
        if (host != me)
            reduce_into(results_, results_, from_host(host), mine.count, arrays_.type,
                        without_average(arrays_.reduce));
    if (arrays_.reduce == Reduce::average)
        divide(results_, mine.count, arrays_.type, topology_.size());
    return {};
}

/// Each rank takes its own part from the rank of its host that has it.
Result<void> ReduceScatter::take_own() {
    std::byte* const place = arrays_.out + at_ * element_;
    const std::uint32_t rails = topology_.rails();
    if (host_ == nullptr || rails == topology_.places()) {  // which is this rank itself
        copy_bytes(place, results_, n_ * element_);
        return {};
    }
    std::vector<Chunk> chunks;
    std::size_t before = 0;
    for (std::uint32_t rail = 0; rail < rails; ++rail) {
        chunks.push_back({before, of_host(topology_.host(), rail).count});
        before += chunks.back().count;
    }
    const std::size_t own_at =
        chunks[topology_.place() % rails].at + topology_.place() / rails * n_;
    const auto take = [&](std::size_t at, std::size_t number, const std::byte* from) {
        const std::size_t begin = std::max(at, own_at);
        const std::size_t end = std::min(at + number, own_at + n_);
        if (begin < end)
            copy_bytes(place + (begin - own_at) * element_, from + (begin - at) * element_,
                       (end - begin) * element_);
    };
    return host_->share_chunks(chunks, element_, results_, take);
}

}  // namespace

Result<void> NativeGroup::reduce_scatter_levels(const Operation& what) {
    // All ranks' parts go side by side, a bit of each at a time, so that little memory is needed.
    const std::size_t step = std::max<std::size_t>(
        1, kRailBytesMax * topology_.rails() / spec_.size / bytes_of(what.type));
    ReduceScatter levels(topology_, host_, rail_.get(),
                         {static_cast<const std::byte*>(what.in), static_cast<std::byte*>(what.out),
                          what.count, what.type, what.reduce},
                         scratch_);
    for (std::size_t at = 0; at < what.count; at += step)
        if (auto done = levels.run(at, std::min(step, what.count - at)); !done) return done;
    return {};
}

}  // namespace dtrun::collectives::native
