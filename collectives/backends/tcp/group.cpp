#include "collectives/backends/tcp/group.h"

#include <dtrun_version.h>
#include "collectives/backends/first_loss.h"
#include "collectives/codec/reduce.h"

#include <sched.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace dtrun::collectives::over_tcp {

namespace {

/// Whether the ranks of this host have fewer processors than they are.
bool is_crowded(const GroupSpec& spec) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
    return static_cast<int>(spec.topology.places()) > CPU_COUNT(&allowed);
}

}  // namespace

Result<std::unique_ptr<Group>> connect(const GroupSpec& spec) {
    auto group = connect_tcp(spec);
    if (!group) return std::unexpected(group.error());
    return std::move(*group);
}

Result<std::unique_ptr<TcpGroup>> connect_tcp(const GroupSpec& spec) {
    auto address = choose_address(spec);
    if (!address) {
        AddressBook::refuse(spec, address.error().message);
        return std::unexpected(address.error());
    }
    std::unique_ptr<PeerListener> listener;
    if (spec.size > 1) {
        auto opened = PeerListener::open(address->ip, spec.size);
        if (!opened) {
            AddressBook::refuse(spec, opened.error().message);
            return std::unexpected(opened.error());
        }
        listener = std::move(*opened);
    }
    auto group = std::make_unique<TcpGroup>(spec, *std::move(address), std::move(listener));
    if (auto done = group->open(); !done) return std::unexpected(done.error());
    return group;
}

TcpGroup::TcpGroup(const GroupSpec& spec, LocalAddress address,
                   std::unique_ptr<PeerListener> listener)
    : GroupOfOperations(spec.rank, spec.size),
      spec_(spec),
      address_(std::move(address)),
      address_book_(spec),
      peers_(std::move(listener)) {
    if (!peers_) return;
    const bool crowded = is_crowded(spec);
    streams_ = std::make_unique<Mesh>(address_book_, *peers_, abort_signal_,
                                      ConnectionKind::streams, crowded, spec.interrupted);
    message_mesh_ = std::make_unique<Mesh>(address_book_, *peers_, abort_signal_,
                                           ConnectionKind::messages, crowded, spec.interrupted);
    messages_ = std::make_unique<TcpMessages>(*message_mesh_);
    chunk_.resize(chunk_bytes_);
}

Result<void> TcpGroup::open() {
    if (size_ == 1) return {};
    if (auto published = address_book_.publish(peers_->address()); !published) return published;
    const auto peers = neighbours(rank_, size_);
    if (auto connected = streams_->connect(peers); !connected) return connected;
    // The smallest socket buffer of all ranks decides the chunk size.
    std::int64_t room = std::numeric_limits<std::int64_t>::max();
    for (const std::uint32_t peer : peers)
        room = std::min(room, static_cast<std::int64_t>(streams_->socket(peer).send_room()));
    if (spec_.encrypt) room -= room / 16;  // for what records are more than their content
    if (auto done = run(op::allreduce(&room, &room, 1, DType::i64, Reduce::min)); !done)
        return done;
    chunk_bytes_ = chunk_bytes(static_cast<std::size_t>(room));
    chunk_.resize(chunk_bytes_);
    address_book_.wait_forever();
    return {};
}

GroupFacts TcpGroup::facts() const {
    GroupFacts facts;
    facts.version = "dtrun " DTRUN_VERSION;
    facts.transport = address_.interface.empty()
                          ? fmt::format("tcp over {}", address_.ip)
                          : fmt::format("tcp over {} ({})", address_.interface, address_.ip);
    if (streams_)
        facts.details.emplace_back(
            "connections",
            fmt::format("{} of {} for collectives, {} for messages", streams_->connections(),
                        size_ - 1, message_mesh_->connections()));
    facts.details.emplace_back("encryption", spec_.encrypt ? "AES-256-GCM (--encrypt)" : "no");
    facts.details.emplace_back("GPUDirect RDMA", "no: TCP sends memory of the host");
    return facts;
}

/// Numbers an operation, and turns its error into the group's.
Result<void> TcpGroup::run(const Operation& what) {
    if (error_) return std::unexpected(*error_);
    call_ = mixed(mixed(digest(what) + expected_) + ++sequence_);
    Result<void> result = GroupOfOperations::run(what);
    if (result) return result;
    return std::unexpected(failed(result.error()));
}

void TcpGroup::shut() noexcept {
    if (!streams_) return;
    streams_->shut();
    message_mesh_->shut();
}

void TcpGroup::abort() noexcept {
    abort_signal_.raise();
    shut();
}

Error TcpGroup::failed(const Error& error) {
    if (error_) return *error_;
    if (abort_signal_.ended())
        error_ = Error{Errc::cancelled, "aborted"};
    else if (error.code == Errc::closed && (lost_ = who_was_lost()))
        error_ = Error{Errc::closed, fmt::format("lost rank {}: {}", address_book_.name_of(*lost_),
                                                 error.message)};
    else
        error_ = error;
    // Other ranks wait for this one, directly or through others, until its connections end.
    shut();
    return *error_;
}

std::optional<std::uint32_t> TcpGroup::who_was_lost() {
    auto broken = streams_->broken();
    if (!broken) broken = message_mesh_->broken();
    if (!broken) return std::nullopt;
    return first_loss(address_book_.store(), address_book_.key("lost"), rank_, size_, *broken);
}

std::uint32_t TcpGroup::tag(std::size_t bytes, std::uint32_t part) const {
    return (static_cast<std::uint32_t>(mixed(call_ + bytes)) & ~1U) | part;
}

std::uint32_t TcpGroup::at(std::int64_t distance) const {
    const auto size = static_cast<std::int64_t>(size_);
    return static_cast<std::uint32_t>(((rank_ + distance) % size + size) % size);
}

std::byte* TcpGroup::scratch(std::size_t bytes) {
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    return scratch_.data();
}

Result<void> TcpGroup::send(std::uint32_t to, const void* data, std::size_t bytes) {
    if (bytes == 0) return {};
    return SendStream(*streams_, to, tag(bytes), data).send(0, bytes, 0);
}

Result<void> TcpGroup::receive(std::uint32_t from, void* data, std::size_t bytes) {
    if (bytes == 0) return {};
    const auto whole = RecvStream(*streams_, from, tag(bytes), data, bytes).receive(IfLate::wait);
    return whole ? Result<void>() : std::unexpected(whole.error());
}

Result<void> TcpGroup::send_to_combine(std::uint32_t to, const void* data, std::size_t bytes) {
    SendStream out(*streams_, to, tag(bytes), data);
    for (std::size_t at = 0; at < bytes; at += chunk_bytes_)
        if (auto sent = out.send(at, std::min(chunk_bytes_, bytes - at), 0); !sent) return sent;
    return {};
}

Result<void> TcpGroup::exchange(std::uint32_t to, const void* out, std::size_t out_bytes,
                                std::uint32_t from, void* in, std::size_t in_bytes) {
    SendStream outgoing(*streams_, to, tag(out_bytes), out);
    RecvStream incoming(*streams_, from, tag(in_bytes), in, in_bytes);
    return flow(
        outgoing, incoming, {.sends = chunks_of(out_bytes), .receives = chunks_of(in_bytes)},
        [&](std::size_t part) {
            const std::size_t offset = part * chunk_bytes_;
            return outgoing.send(offset, std::min(chunk_bytes_, out_bytes - offset), offset);
        },
        [&](std::size_t, IfLate if_late) { return incoming.receive(if_late); });
}

Result<void> TcpGroup::receive_into(std::uint32_t from, const void* mine, void* result,
                                    std::size_t count, Elements elements) {
    return exchange_into(from, nullptr, 0, mine, result, count, elements);
}

Result<void> TcpGroup::exchange_into(std::uint32_t peer, const void* out, std::size_t out_count,
                                     const void* mine, void* result, std::size_t count,
                                     Elements elements) {
    const std::size_t out_bytes = elements.bytes(out_count);
    const std::size_t in_bytes = elements.bytes(count);
    SendStream outgoing(*streams_, peer, tag(out_bytes), out);
    RecvStream incoming(*streams_, peer, tag(in_bytes), chunk_.data(), chunk_.size());
    return flow(
        outgoing, incoming, {.sends = chunks_of(out_bytes), .receives = chunks_of(in_bytes)},
        [&](std::size_t part) {
            const std::size_t offset = part * chunk_bytes_;
            return outgoing.send(offset, std::min(chunk_bytes_, out_bytes - offset), 0);
        },
        [&](std::size_t part, IfLate if_late) -> Result<bool> {
            if (auto whole = incoming.receive(if_late); !whole || !*whole) return whole;
            const std::size_t offset = part * chunk_bytes_;
            // The lower rank's come first, so that both ends compute the very same bits.
            const void* low = static_cast<const std::byte*>(mine) + offset;
            const void* high = chunk_.data();
            if (peer < rank_) std::swap(low, high);
            reduce_into(static_cast<std::byte*>(result) + offset, low, high,
                        elements.count(std::min(chunk_bytes_, in_bytes - offset)), elements.type,
                        elements.reduce);
            return true;
        });
}

Result<std::unique_ptr<Pending>> TcpGroup::start(std::span<const Send> sends,
                                                 std::span<const Receive> receives) {
    if (error_) return std::unexpected(*error_);
    if (auto checked = check_peers(sends, receives); !checked)
        return std::unexpected(checked.error());
    if (!messages_) {
        struct Nothing final : Pending {
            Result<void> wait() override { return {}; }
        };
        return std::make_unique<Nothing>();
    }
    return messages_->start(sends, receives, expected_,
                            [this](const Error& error) { return failed(error); });
}

}  // namespace dtrun::collectives::over_tcp
