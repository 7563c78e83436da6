#pragma once

#include "tests/support/catch.h"
#include "worker/client/requests.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrun::embedded {

inline constexpr std::uint64_t kClient = 7;
inline constexpr std::uint64_t kChangesMax = 64;

/// Requests over a connection, and the store at the other end of it.
class Asked final : private ServerConnection::Handler {
public:
    Asked() {
        auto [ours, theirs] = private_socket_pair();
        store_ = FrameSocket(std::move(theirs));
        REQUIRE(connection_.open(FrameSocket(std::move(ours)),
                                 [](const FrameSocket&) { return std::vector<Bytes>(); }));
    }
    Outcome<Bytes> set(std::size_t value_bytes, const WaitContext& context = {}) {
        const std::string value(value_bytes, 'x');
        const StoreRequest request{.op = Op::set, .keys = {"key"}, .values = {value}};
        return requests_.ask(Op::set, encode_request({}, request, 1), context);
    }
    Outcome<Bytes> pop(const WaitContext& context = {}) {
        const StoreRequest request{.op = Op::pop, .keys = {"queue"}, .timeout_ms = kForeverMs};
        return requests_.ask(Op::pop, encode_request({}, request, 1), context);
    }
    Outcome<Bytes> get(const WaitContext& context) {
        const StoreRequest request{.op = Op::get, .keys = {"key"}, .timeout_ms = kForeverMs};
        return requests_.ask(Op::get, encode_request({}, request, 1), context);
    }
    /// Past the agent: nothing if it has to be asked.
    std::optional<Outcome<Bytes>> ask_directly(Op op, const WaitContext& context = {}) {
        StoreRequest request{.op = op, .keys = {"key"}};
        if (op == Op::set) request.values = {"value"};
        Bytes frame = encode_request({}, request, 1);
        return requests_.ask_directly(op, frame, context);
    }
    DirectStore& direct_store() { return requests_.direct_store(); }
    /// Of a request for "key", without a wait. \return its number
    std::uint64_t submit(Op op, Moment limit = Moment::max(), bool more = false) {
        StoreRequest request{.op = op, .keys = {"key"}, .timeout_ms = kForeverMs};
        if (op == Op::set) request.values = {"value"};
        return requests_
            .submit({.op = op, .limit = limit, .more = more}, encode_request({}, request, 1))
            .value();
    }
    std::uint64_t submit_set(std::size_t value_bytes) {
        const std::string value(value_bytes, 'x');
        const StoreRequest request{.op = Op::set, .keys = {"key"}, .values = {value}};
        return requests_.submit({.op = Op::set}, encode_request({}, request, 1)).value();
    }
    Outcome<Requests::Completion> complete(Moment until = now() + std::chrono::seconds(10)) {
        return requests_.complete({until, {}});
    }
    bool cancel(std::uint64_t number) { return requests_.cancel(number); }
    int fd() {
        const auto lock = connection_.lock();
        return events_.fd().value();
    }
    /// The next request that the store gets; one without a number if it gets none.
    RequestHeader next_request(Moment until = now() + std::chrono::seconds(10)) {
        for (;;) {
            const auto frame = store_.next();
            const bool is_there = frame && *frame;
            if (is_there && (*frame)->type == FrameType::request)
                return decode_request((*frame)->payload)->header;
            if (is_there) continue;  // that a lane has ended
            if (store_.receive(until) != FrameSocket::Got::bytes) return {};
        }
    }
    static Bytes answer_to(std::uint64_t id) {
        return encode_reply({kClient, id, Status::ok}, "\x90");
    }
    void answer(const RequestHeader& request, Status status, std::string_view results = "\x90") {
        answer(encode_reply({request.client, request.id, status}, results));
    }
    void end() { store_.shut_down(); }
    void answer(const Bytes& frames) { REQUIRE(store_.send(frames)); }
    std::vector<Bytes> unanswered() const {
        const auto lock = connection_.lock();
        std::vector<Bytes> frames;
        requests_.add_unanswered(frames);
        return frames;
    }

private:
    void on_open(int socket) override { events_.watch(socket); }
    void on_bytes() override {}
    Result<void> on_frame(const FrameView& frame) override {
        return requests_.on_reply(frame.payload);
    }
    bool on_lost() override {
        events_.unwatch();
        return false;
    }
    void on_closed() override { requests_.on_closed(); }
    void on_unsent(bool is_left) override { events_.on_unsent(is_left); }

    ServerConnection connection_{*this, "the store has gone"};
    ClientMembership membership_{RankInfo{}};
    EventQueue events_;
    Requests requests_{connection_, membership_, events_, kClient};
    FrameSocket store_;
};

}  // namespace dtrun::embedded
