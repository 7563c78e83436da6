#include "collectives/gloo/group.h"

#include "collectives/codec/reduce.h"

#include <gloo/config.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace dtrun::collectives::over_gloo {

Result<std::unique_ptr<Group>> connect(const GroupSpec& spec) {
    auto address = choose_address(spec);
    if (!address) {
        Mesh::refuse(spec, address.error().message);
        return std::unexpected(address.error());
    }
    std::unique_ptr<Transport> transport;
    if (spec.size > 1) {
        auto opened = Transport::open(address->ip);
        if (!opened) {
            Mesh::refuse(spec, opened.error().message);
            return std::unexpected(opened.error());
        }
        transport = std::move(*opened);
    }
    auto group = std::make_unique<GlooGroup>(spec, *std::move(address), std::move(transport));
    if (auto done = group->open(); !done) return std::unexpected(done.error());
    return group;
}

GlooGroup::GlooGroup(const GroupSpec& spec, LocalAddress address,
                     std::unique_ptr<Transport> transport)
    : spec_(spec),
      rank_(spec.rank),
      size_(spec.size),
      address_(std::move(address)),
      pid_(getpid()),
      transport_(std::move(transport)) {
    if (!transport_) return;
    messages_ = std::make_unique<Messages>(*transport_, spec_);
    streams_ = std::make_unique<Mesh>(*transport_, spec_, Mesh::Kind::streams,
                                      [this](std::uint32_t) { messages_->abort_connected(); });
    segment_.resize(segment_bytes_);
}

GlooGroup::~GlooGroup() {
    if (!transport_) return;
    if (getpid() != pid_) {
        // A forked child lacks the device's thread, so destructors would wait for ever.
        static_cast<void>(messages_.release());
        static_cast<void>(streams_.release());
        static_cast<void>(transport_.release());
        return;
    }
    const Transport::Hurry hurry(*transport_);
    streams_.reset();  // which may call messages_ until then
    messages_.reset();
}

Result<void> GlooGroup::open() {
    if (size_ == 1) return {};
    const auto peers = neighbours(rank_, size_);
    if (auto connected = streams_->connect(peers); !connected) return connected;
    // The smallest socket buffer of all ranks decides the segment size.
    std::int64_t room = std::numeric_limits<std::int64_t>::max();
    for (const std::uint32_t peer : peers) {
        streams_->socket(peer).make_send_room();
        room = std::min(room, static_cast<std::int64_t>(streams_->socket(peer).send_room()));
    }
    if (auto done = allreduce(&room, &room, 1, DType::i64, Reduce::min); !done) return done;
    segment_bytes_ = segment_bytes(static_cast<std::size_t>(room));
    segment_.resize(segment_bytes_);
    streams_->wait_forever();
    return {};
}

GroupFacts GlooGroup::facts() const {
    GroupFacts facts;
    facts.version =
        fmt::format("Gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
    facts.transport = address_.interface.empty()
                          ? fmt::format("tcp over {}", address_.ip)
                          : fmt::format("tcp over {} ({})", address_.interface, address_.ip);
    if (streams_)
        facts.details.emplace_back(
            "connections",
            fmt::format("{} of {} for collectives, {} for messages", streams_->connections(),
                        size_ - 1, messages_->connections()));
    facts.details.emplace_back("GPUDirect RDMA", "no: Gloo's TCP sends memory of the host");
    return facts;
}

void GlooGroup::abort() noexcept {
    aborted_ = true;
    if (!transport_) return;
    streams_->shut();
    messages_->abort();
}

Error GlooGroup::failed(const Error& error) {
    if (error_) return *error_;
    // What is cancelled without abort() here was aborted elsewhere.
    const bool connection = error.code == Errc::closed || error.code == Errc::cancelled;
    if (aborted_)
        error_ = Error{Errc::cancelled, "aborted"};
    else if (connection && (lost_ = who_was_lost()))
        error_ = Error{Errc::closed,
                       fmt::format("lost rank {}: {}", streams_->name_of(*lost_), error.message)};
    else
        error_ = error;
    // Other ranks wait for this one, directly or through others, until its connections end.
    streams_->shut();
    messages_->abort();
    messages_->close();
    return *error_;
}

std::optional<std::uint32_t> GlooGroup::who_was_lost() {
    auto broken = streams_->broken();
    if (!broken) broken = messages_->broken();
    if (!broken) return std::nullopt;
    // A rank closes its own connections after this. So the first rank here has seen the cause, and
    // others may have seen only the first one close.
    const std::string key = spec_.prefix + "gloo/lost";
    const auto known = spec_.store->find(key);
    std::uint32_t first = rank_;
    if (known && *known) {
        std::from_chars((*known)->data(), (*known)->data() + (*known)->size(), first);
    } else if (known) {
        const KeyStore::Pair pair(key, std::to_string(*broken));
        static_cast<void>(spec_.store->set({&pair, 1}));
    }
    return first == rank_ || first >= size_ ? broken : first;
}

std::uint32_t GlooGroup::tag(std::size_t bytes, std::uint32_t part) const {
    return (static_cast<std::uint32_t>(mixed(call_ + bytes)) & ~1U) | part;
}

std::uint32_t GlooGroup::at(std::int64_t distance) const {
    const auto size = static_cast<std::int64_t>(size_);
    return static_cast<std::uint32_t>(((rank_ + distance) % size + size) % size);
}

std::byte* GlooGroup::scratch(std::size_t bytes) {
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    return scratch_.data();
}

Result<void> GlooGroup::send(std::uint32_t to, const void* data, std::size_t bytes) {
    if (bytes == 0) return {};
    return Outlet(*streams_, to, tag(bytes), data, bytes).send(0, bytes, 0);
}

Result<void> GlooGroup::receive(std::uint32_t from, void* data, std::size_t bytes) {
    if (bytes == 0) return {};
    return Inlet(*streams_, from, tag(bytes), data, bytes).receive();
}

Result<void> GlooGroup::send_to_combine(std::uint32_t to, const void* data, std::size_t bytes) {
    Outlet out(*streams_, to, tag(bytes), data, bytes);
    for (std::size_t at = 0; at < bytes; at += segment_bytes_)
        if (auto sent = out.send(at, std::min(segment_bytes_, bytes - at), 0); !sent) return sent;
    return {};
}

Result<void> GlooGroup::exchange(std::uint32_t to, const void* out, std::size_t out_bytes,
                                 std::uint32_t from, void* in, std::size_t in_bytes) {
    Outlet outlet(*streams_, to, tag(out_bytes), out, out_bytes);
    Inlet inlet(*streams_, from, tag(in_bytes), in, in_bytes);
    return flow(
        outlet, inlet, {.sends = segments_of(out_bytes), .receives = segments_of(in_bytes)},
        [&](std::size_t part) {
            const std::size_t offset = part * segment_bytes_;
            return outlet.send(offset, std::min(segment_bytes_, out_bytes - offset), offset);
        },
        [&](std::size_t) { return inlet.receive(); });
}

Result<void> GlooGroup::receive_into(std::uint32_t from, const void* mine, void* result,
                                     std::size_t count, Elements elements) {
    return exchange_into(from, nullptr, 0, mine, result, count, elements);
}

Result<void> GlooGroup::exchange_into(std::uint32_t peer, const void* out, std::size_t out_count,
                                      const void* mine, void* result, std::size_t count,
                                      Elements elements) {
    const std::size_t out_bytes = elements.bytes(out_count);
    const std::size_t in_bytes = elements.bytes(count);
    Outlet outlet(*streams_, peer, tag(out_bytes), out, out_bytes);
    Inlet inlet(*streams_, peer, tag(in_bytes), segment_.data(), segment_.size());
    return flow(
        outlet, inlet, {.sends = segments_of(out_bytes), .receives = segments_of(in_bytes)},
        [&](std::size_t part) {
            const std::size_t offset = part * segment_bytes_;
            return outlet.send(offset, std::min(segment_bytes_, out_bytes - offset), 0);
        },
        [&](std::size_t part) -> Result<void> {
            if (auto received = inlet.receive(); !received) return received;
            const std::size_t offset = part * segment_bytes_;
            // The lower rank's come first, so that both ends compute the very same bits.
            const void* low = static_cast<const std::byte*>(mine) + offset;
            const void* high = segment_.data();
            if (peer < rank_) std::swap(low, high);
            reduce_into(static_cast<std::byte*>(result) + offset, low, high,
                        elements.count(std::min(segment_bytes_, in_bytes - offset)), elements.type,
                        elements.reduce);
            return {};
        });
}

Result<std::unique_ptr<Pending>> GlooGroup::start(std::span<const Send> sends,
                                                  std::span<const Receive> receives) {
    if (error_) return std::unexpected(*error_);
    const auto other = [this](const auto& message) {
        return message.peer < size_ && message.peer != rank_;
    };
    if (!std::ranges::all_of(sends, other) || !std::ranges::all_of(receives, other))
        return fail(Errc::invalid_input, "a message to no other rank of the {}", size_);
    if (!messages_) {
        struct Nothing final : Pending {
            Result<void> wait() override { return {}; }
        };
        return std::make_unique<Nothing>();
    }
    return messages_->start(sends, receives, expected_,
                            [this](const Error& error) { return failed(error); });
}

}  // namespace dtrun::collectives::over_gloo
