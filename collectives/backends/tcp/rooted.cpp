#include "collectives/backends/tcp/group.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include "collectives/codec/reduce.h"

namespace dtrun::collectives::over_tcp {
namespace {

/// A node's distance to its parent in a binomial tree; the root's is that of its largest child,
/// times two.
std::uint32_t parent_distance(std::uint32_t node, std::uint32_t size) {
    return node == 0 ? std::bit_ceil(size) : node & (~node + 1);
}

/// Calls with parts of [begin, end) in which distances from the root are ranks in a row.
template <class Run>
Result<void> runs(std::uint32_t begin, std::uint32_t end, std::uint32_t wrap, Run&& run) {
    if (begin < wrap && wrap < end) {
        if (auto done = run(begin, wrap); !done) return done;
        begin = wrap;
    }
    return run(begin, end);
}

}  // namespace

/// A chain passes chunks on while others come, so it takes as many steps as there are chunks,
/// and one for each rank to fill it; a tree takes all chunks log2 n times.
bool TcpGroup::chain_is_faster(std::size_t bytes) const {
    const std::size_t chunks = std::max<std::size_t>(1, chunks_of(bytes));
    const auto levels = static_cast<std::size_t>(std::bit_width(size_ - 1));
    return size_ > 2 && size_ - 2 + chunks < levels * chunks;
}

Result<void> TcpGroup::reduce(const Operation& what) {
    if (what.count == 0) return {};
    const Elements elements{what.type, what.reduce};
    const auto done = chain_is_faster(what.bytes())
                          ? reduce_chain(what.in, what.out, what.count, elements, what.root)
                          : reduce_tree(what.in, what.out, what.count, elements, what.root);
    if (done && rank_ == what.root && what.reduce == Reduce::average)
        divide(what.out, what.count, what.type, size_);
    return done;
}

Result<void> TcpGroup::reduce_chain(const void* in, void* out, std::size_t count, Elements elements,
                                    std::uint32_t root) {
    const std::size_t bytes = elements.bytes(count);
    const std::uint32_t node = distance_from(root);
    if (node == 0) return receive_into(at(1), in, out, count, elements);
    if (node == size_ - 1) return send_to_combine(at(-1), in, bytes);

    // One part is added up while the other one is sent on.
    std::byte* sums = scratch(2 * chunk_bytes_);
    SendStream outgoing(*streams_, at(-1), tag(bytes), sums);
    RecvStream incoming(*streams_, at(1), tag(bytes), chunk_.data(), chunk_.size());
    const auto length = [&](std::size_t part) {
        return std::min(chunk_bytes_, bytes - part * chunk_bytes_);
    };
    const std::size_t parts = chunks_of(bytes);
    return flow(
        outgoing, incoming, {.sends = parts, .receives = parts, .lead = 0, .lag = 2},
        [&](std::size_t part) { return outgoing.send(part % 2 * chunk_bytes_, length(part), 0); },
        [&](std::size_t part, IfLate if_late) -> Result<bool> {
            if (auto whole = incoming.receive(if_late); !whole || !*whole) return whole;
            reduce_into(sums + part % 2 * chunk_bytes_, at_byte(in, 0) + part * chunk_bytes_,
                        chunk_.data(), elements.count(length(part)), elements.type,
                        elements.reduce);
            return true;
        });
}

Result<void> TcpGroup::reduce_tree(const void* in, void* out, std::size_t count, Elements elements,
                                   std::uint32_t root) {
    const std::size_t bytes = elements.bytes(count);
    const std::uint32_t node = distance_from(root);
    const bool leaf = (node & 1) != 0 || node + 1 == size_;
    std::byte* sums = node == 0 ? at_byte(out, 0) : leaf ? nullptr : scratch(bytes);
    const void* mine = in;
    for (std::uint32_t distance = 1; distance < size_; distance *= 2) {
        if (node & distance) return send_to_combine(at(-std::int64_t{distance}), mine, bytes);
        if (node + distance >= size_) continue;
        if (auto done = receive_into(at(distance), mine, sums, count, elements); !done) return done;
        mine = sums;
    }
    if (mine != out) std::memcpy(out, mine, bytes);
    return {};
}

Result<void> TcpGroup::broadcast(const Operation& what) {
    const std::size_t bytes = what.bytes();
    return chain_is_faster(bytes) ? broadcast_chain(what.out, bytes, what.root)
                                  : broadcast_tree(what.out, bytes, what.root);
}

Result<void> TcpGroup::broadcast_chain(void* data, std::size_t bytes, std::uint32_t root) {
    const std::uint32_t node = distance_from(root);
    SendStream outgoing(*streams_, at(1), tag(bytes), data);
    RecvStream incoming(*streams_, at(-1), tag(bytes), data, bytes);
    const std::size_t parts = chunks_of(bytes);
    const bool first = node == 0, last = node == size_ - 1;
    return flow(
        outgoing, incoming,
        {.sends = last ? 0 : parts, .receives = first ? 0 : parts, .lead = first ? parts : 0},
        [&](std::size_t part) {
            const std::size_t offset = part * chunk_bytes_;
            return outgoing.send(offset, std::min(chunk_bytes_, bytes - offset), offset);
        },
        [&](std::size_t, IfLate if_late) { return incoming.receive(if_late); });
}

Result<void> TcpGroup::broadcast_tree(void* data, std::size_t bytes, std::uint32_t root) {
    const std::uint32_t node = distance_from(root);
    std::uint32_t distance = parent_distance(node, size_);
    if (node != 0)
        if (auto done = receive(at(-std::int64_t{distance}), data, bytes); !done) return done;
    while (distance /= 2)
        if (node + distance < size_)
            if (auto done = send(at(distance), data, bytes); !done) return done;
    return {};
}

Result<void> TcpGroup::gather(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    if (size_ > kMeshRanksMax) return gather_tree(what.in, what.out, bytes, what.root);
    if (rank_ != what.root) return send(what.root, what.in, bytes);
    std::byte* const parts = at_byte(what.out, 0);
    std::byte* const own = parts + rank_ * bytes;
    if (own != what.in) std::memcpy(own, what.in, bytes);
    for (std::uint32_t step = 1; step < size_; ++step)
        if (auto done = receive(at(step), parts + at(step) * bytes, bytes); !done) return done;
    return {};
}

Result<void> TcpGroup::gather_tree(const void* in, void* out, std::size_t bytes,
                                   std::uint32_t root) {
    const std::uint32_t node = distance_from(root);
    const std::uint32_t wrap = size_ - root;
    const std::uint32_t width = std::min(parent_distance(node, size_), size_ - node);
    // A leaf sends from where its block is.
    std::byte* blocks = node == 0 ? at_byte(out, 0) : width == 1 ? nullptr : scratch(width * bytes);
    const auto place = [&](std::uint32_t at_node) {
        return blocks + (node == 0 ? (root + at_node) % size_ : at_node - node) * bytes;
    };
    if (blocks && place(node) != in) std::memcpy(place(node), in, bytes);
    for (std::uint32_t distance = 1; distance < size_; distance *= 2) {
        if (node & distance) {
            const std::uint32_t parent = at(-std::int64_t{distance});
            return runs(node, node + width, wrap, [&](std::uint32_t begin, std::uint32_t end) {
                return send(parent, blocks ? place(begin) : in, (end - begin) * bytes);
            });
        }
        if (node + distance >= size_) continue;
        const auto done =
            runs(node + distance, std::min(node + 2 * distance, size_), wrap,
                 [&](std::uint32_t begin, std::uint32_t end) {
                     return receive(at(distance), place(begin), (end - begin) * bytes);
                 });
        if (!done) return done;
    }
    return {};
}

Result<void> TcpGroup::scatter(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    if (size_ > kMeshRanksMax) return scatter_tree(what.in, what.out, bytes, what.root);
    if (rank_ != what.root) return receive(what.root, what.out, bytes);
    const std::byte* const parts = at_byte(what.in, 0);
    const std::byte* const own = parts + rank_ * bytes;
    if (own != what.out) std::memcpy(what.out, own, bytes);
    for (std::uint32_t step = 1; step < size_; ++step)
        if (auto done = send(at(step), parts + at(step) * bytes, bytes); !done) return done;
    return {};
}

Result<void> TcpGroup::scatter_tree(const void* in, void* out, std::size_t bytes,
                                    std::uint32_t root) {
    const std::uint32_t node = distance_from(root);
    const std::uint32_t wrap = size_ - root;
    std::uint32_t distance = parent_distance(node, size_);
    const std::uint32_t width = std::min(distance, size_ - node);
    std::byte* blocks = node == 0 ? nullptr : width == 1 ? at_byte(out, 0) : scratch(width * bytes);
    const auto place = [&](std::uint32_t at_node) -> const std::byte* {
        return node == 0 ? at_byte(in, 0) + (root + at_node) % size_ * bytes
                         : blocks + (at_node - node) * bytes;
    };
    if (node != 0) {
        const auto done =
            runs(node, node + width, wrap, [&](std::uint32_t begin, std::uint32_t end) {
                return receive(at(-std::int64_t{distance}), blocks + (begin - node) * bytes,
                               (end - begin) * bytes);
            });
        if (!done) return done;
    }
    while (distance /= 2) {
        if (node + distance >= size_) continue;
        const auto done = runs(node + distance, std::min(node + 2 * distance, size_), wrap,
                               [&](std::uint32_t begin, std::uint32_t end) {
                                   return send(at(distance), place(begin), (end - begin) * bytes);
                               });
        if (!done) return done;
    }
    if (place(node) != out) std::memcpy(out, place(node), bytes);
    return {};
}

}  // namespace dtrun::collectives::over_tcp
