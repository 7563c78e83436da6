#include "rendezvous/asking/direct_store_server.h"

#include "base/fd.h"
#include "base/log.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/handshake_records.h"

#include <algorithm>
#include <utility>

namespace dtrun {

DirectStoreServer::DirectStoreServer(asio::any_io_executor executor, Outbox& others)
    : executor_(executor), others_(others), acceptor_(executor), tasks_(executor) {}

void DirectStoreServer::use(Hub& hub, HubTimer& timer) {
    hub_ = &hub;
    timer_ = &timer;
}

Result<std::string> DirectStoreServer::open() {
    auto name = listen_at_own_name(acceptor_, "the store");
    if (name) tasks_.spawn(accept());
    return name;
}

asio::awaitable<void> DirectStoreServer::accept() {
    AcceptTrouble trouble("the socket of the store");
    for (;;) {
        auto socket = co_await accept_next(acceptor_, trouble);
        if (!socket || !acceptor_.is_open()) co_return;
        if (programs_.size() >= kConnectionsMax || foreign_user(socket->native_handle())) continue;
        start(std::make_unique<Program>(std::move(*socket)));
    }
}

void DirectStoreServer::admit(Connection connection) {
    const auto remote = std::ranges::count_if(
        programs_, [](const auto& program) { return program.second->is_remote; });
    if (programs_.size() >= kConnectionsMax || std::cmp_greater_equal(remote, kRemoteMax)) return;
    start(std::make_unique<Program>(std::move(connection)));
}

void DirectStoreServer::start(std::unique_ptr<Program> program) {
    const PeerId id = ++last_peer_;
    programs_.emplace(id, std::move(program));
    tasks_.spawn(serve(id));
}

asio::awaitable<void> DirectStoreServer::serve(PeerId id) {
    Link& link = programs_.at(id)->link;
    TaskGroup writer(executor_);
    writer.spawn(link.run_writer());
    const std::function<Result<void>(const FrameView&)> handle =
        [this, id](const FrameView& frame) { return heard(id, frame); };
    const auto served = co_await link.serve(handle);
    if (served.error().code == Errc::invalid_input)
        log::info("who asks the store past its agent: {}", served.error().message);
    if (programs_.at(id)->greeted) hub_->remove_peer(id);
    link.close();
    co_await writer.join();
    programs_.erase(id);
}

/// Errc: invalid_input
Result<void> DirectStoreServer::heard(PeerId id, const FrameView& frame) {
    Program& program = *programs_.at(id);
    if (!program.greeted) {
        const auto hello = decode<Hello>(frame.payload);
        if (frame.type != FrameType::hello || !hello)
            return fail(Errc::invalid_input, "a program's first frame is hello");
        if (!ProtocolVersions{}.knows(hello->protocol))
            return fail(Errc::invalid_input, "it speaks protocol {}, this is {}", hello->protocol,
                        kProtocolVersion);
        program.greeted = true;
        hub_->add_peer(id, PeerKind::rank, kNoRank);
        program.link.send(encode(Welcome{}));
        return {};
    }
    if (frame.type != FrameType::request && frame.type != FrameType::gone)
        return fail(Errc::invalid_input, "unexpected frame of type {}",
                    std::to_underlying(frame.type));
    auto done = hub_->from_peer(id, frame, Clock::now());
    timer_->look();
    return done;
}

void DirectStoreServer::to_peer(PeerId peer, FrameType type, std::string_view payload) {
    if (peer < kFirstPeer) return others_.to_peer(peer, type, payload);
    if (const auto found = programs_.find(peer); found != programs_.end())
        found->second->link.send(type, payload);
}

void DirectStoreServer::tell_peer(PeerId peer, FrameType type, std::string_view payload) {
    if (peer < kFirstPeer) return others_.tell_peer(peer, type, payload);
    to_peer(peer, type, payload);
}

void DirectStoreServer::share_with_peer(PeerId peer, FrameType type, std::string_view payload,
                                        const SharedBytes& rest) {
    if (peer < kFirstPeer) return others_.share_with_peer(peer, type, payload, rest);
    if (const auto found = programs_.find(peer); found != programs_.end())
        found->second->link.send_soon(type, payload, rest);
}

asio::awaitable<void> DirectStoreServer::join() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    for (const auto& [id, program] : programs_) program->link.close();
    co_await tasks_.join();
}

}  // namespace dtrun
