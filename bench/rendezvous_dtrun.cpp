// dtrun's own protocol, docs/PROTOCOL.md: a rank and its agent.

#include "bench/rendezvous_protocol.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/request.h"

namespace dtrun::bench {
namespace {

class Dtrun final : public Protocol {
public:
    Progress begin(Task task, Connection& c) override {
        switch (task) {
            case Task::greet:
                c.out += encode(Hello{.rank = Rank{c.rank}, .pid = getpid()});
                return Progress::more;
            case Task::barrier:
                c.out += fence_frame(c.barriers);
                return Progress::more;
            case Task::set:
            case Task::get:
                break;
        }
        Bytes arguments;
        PackWriter writer(arguments);
        writer.array(3);
        writer.uint(0);  // the current generation
        writer.bin(c.key);
        if (task == Task::set)
            writer.bin(c.value);
        else
            writer.uint(kForeverMs);
        const Op op = task == Task::set ? Op::set : Op::get;
        c.out += encode_request({.client = c.rank + 1, .id = ++c.step, .op = op}, arguments);
        return Progress::more;
    }

    Progress received(Task task, Connection& c, std::string_view& bytes) override {
        for (;;) {
            const auto frame = next_frame(bytes);
            if (!frame) return Progress::failed;
            if (!*frame) return Progress::more;
            if ((*frame)->type == FrameType::event) continue;
            return answer(task, c, **frame);
        }
    }

private:
    Progress answer(Task task, const Connection& c, const FrameView& frame) {
        switch (task) {
            case Task::greet: {
                if (frame.type != FrameType::welcome) return Progress::failed;
                const auto welcome = decode<Welcome>(frame.payload);
                if (!welcome || welcome->rank != Rank{c.rank}) return Progress::failed;
                generation_ = welcome->generation;
                return Progress::done;
            }
            case Task::barrier:
                return frame.type == FrameType::fenced && is_fenced(frame.payload, c.barriers)
                           ? Progress::done
                           : Progress::failed;
            case Task::set:
            case Task::get:
                return frame.type == FrameType::reply && is_reply(task, c, frame.payload)
                           ? Progress::done
                           : Progress::failed;
        }
        return Progress::failed;
    }

    static bool is_reply(Task task, const Connection& c, std::string_view payload) {
        const auto reply = decode_reply(payload);
        if (!reply || reply->header.id != c.step || reply->header.status != Status::ok)
            return false;
        if (task == Task::set) return true;
        PackReader reader(reply->results);
        return reader.array() == 1 && reader.bin() == c.value;
    }

    /// All ranks say the same, and the agent says the same to all: each is translated once.
    const Bytes& fence_frame(std::uint64_t round) {
        if (round != fence_round_ || fence_.empty()) {
            Fence fence;
            fence.generation = generation_;
            fence.name = run_;
            fence.round = round;
            fence_ = encode(fence);
            fence_round_ = round;
        }
        return fence_;
    }
    bool is_fenced(std::string_view payload, std::uint64_t round) {
        if (payload == fenced_ && round == fenced_round_) return true;
        const auto fenced = decode<Fenced>(payload);
        if (!fenced || !fenced->complete || fenced->round != round) return false;
        fenced_ = payload;
        fenced_round_ = round;
        return true;
    }

    std::uint64_t generation_ = 0;
    Bytes fence_;
    std::uint64_t fence_round_ = 0;
    Bytes fenced_;
    std::uint64_t fenced_round_ = 0;
};

}  // namespace

std::unique_ptr<Protocol> make_dtrun() {
    return std::make_unique<Dtrun>();
}

}  // namespace dtrun::bench
