#include "rendezvous/hub.h"

#include "rendezvous/msgpack.h"

#include <algorithm>

namespace dtrun {
namespace {

constexpr std::size_t kAnswersMax = 64;  // of one client, remembered
/// Results that are worth being kept once for all who get them.
constexpr std::size_t kSharedBytesMin = 16u << 10;
constexpr std::size_t kReasonBytesMax = 4'096;
/// Ends of fences that are kept. A rank that is at a fence comes to no other of the same thread, so
/// that nobody needs one that is older than so many.
constexpr std::size_t kCompletedMax = 65'536;
constexpr std::size_t kCompletedBytesMax = 64u << 20;
constexpr std::size_t kCompletedKept = 16;  // whatever their bytes

StoreReply text_reply(Status status, std::string_view text) {
    StoreReply reply{status, {}};
    PackWriter out(reply.results);
    out.array(1);
    out.str(text);
    return reply;
}

StoreReply stale_reply(std::uint64_t generation) {
    StoreReply reply{Status::stale, {}};
    PackWriter out(reply.results);
    out.array(1);
    out.uint(generation);
    return reply;
}

}  // namespace

Hub::Hub(Outbox& outbox, HubOptions options, HubJournal* journal)
    : outbox_(outbox), options_(std::move(options)), journal_(journal) {
    make_store();
}

void Hub::make_store() {
    const auto answer = [this](Store::Token token, const StoreReply& reply) {
        answer_late(token, reply);
    };
    store_ = std::make_unique<Store>(answer, journal_, options_.limits);
}

void Hub::add_port(PortId port, PortKind kind, std::uint32_t rank) {
    ports_[port] = Port{kind, rank, {}};
}

void Hub::remove_port(PortId port) {
    ports_.erase(port);
    fences_.retract(port);
    std::erase_if(waiting_, [&](const auto& entry) {
        if (entry.second.port != port) return false;
        for (const auto& [id, op] : entry.second.ids) store_->forget({entry.first, id});
        return true;
    });
}

Result<void> Hub::from_port(PortId id, const FrameView& frame, Deadline now) {
    const auto port = ports_.find(id);
    if (port == ports_.end()) return {};
    switch (frame.type) {
        case FrameType::request:
            return on_request(id, frame.payload, now);
        case FrameType::fence:
            return on_fence(id, frame.payload);
        case FrameType::unfence:
            return on_unfence(frame.payload);
        case FrameType::gone: {
            const auto gone = decode<Gone>(frame.payload);
            if (!gone) return std::unexpected(gone.error());
            if (const auto node = waiting_.extract(gone->client))
                for (const auto& [request, op] : node.mapped().ids)
                    store_->forget({gone->client, request});
            if (answers_.erase(gone->client) > 0 && journal_ != nullptr)
                journal_->answers_seen(gone->client, UINT64_MAX);
            return {};
        }
        case FrameType::heartbeat: {
            const auto heartbeat = decode<Heartbeat>(frame.payload);
            if (!heartbeat) return std::unexpected(heartbeat.error());
            port->second.progress = *heartbeat;
            return {};
        }
        case FrameType::progress: {
            const auto progress = decode<RankProgress>(frame.payload);
            if (!progress) return std::unexpected(progress.error());
            port->second.progress = Heartbeat{1, *progress, progress->step};
            return {};
        }
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

Result<void> Hub::on_request(PortId port, std::string_view payload, Deadline now) {
    const auto request = decode_request(payload);
    if (!request) return std::unexpected(request.error());
    const RequestHeader& header = request->header;
    if (const Bytes* known = remembered(header)) {
        outbox_.to_port(port, FrameType::reply, payload_of(*known));
        return {};
    }
    const auto before = waiting_.find(header.client);
    if (before != waiting_.end() && before->second.ids.contains(header.id)) {
        before->second.port = port;  // it came back before its old connection was seen to end
        return {};
    }
    PackReader in(request->arguments);
    if (in.array() == 0) in.set_failed();
    const std::uint64_t generation = in.uint();
    if (!in.ok()) {
        answer(port, header, text_reply(Status::refused, "malformed arguments"));
    } else if (generation != 0 && generation != this->generation()) {
        answer(port, header, stale_reply(this->generation()));
    } else if (header.op == Op::status) {
        answer(port, header, status_reply());
    } else if (header.op == Op::cancel) {
        store_->cancel({header.client, in.uint()});
        answer(port, header, {Status::ok, Bytes(1, '\x90')});
    } else if (const auto asked = StoreRequest::decode(header.op, in); !asked) {
        answer(port, header, text_reply(Status::refused, asked.error().message));
    } else if (const auto reply = store_->ask({header.client, header.id}, *asked, now)) {
        answer(port, header, *reply);
    } else {
        Waiting& waiting = waiting_[header.client];
        waiting.port = port;
        waiting.ids[header.id] = header.op;
    }
    return {};
}

StoreReply Hub::status_reply() const {
    if (!options_.status) return text_reply(Status::refused, "no status here");
    return text_reply(Status::ok, options_.status());
}

/// The reply of a request that was done before, if it still may be asked for.
const Bytes* Hub::remembered(const RequestHeader& header) {
    if (!options_.reconnects) return nullptr;
    const auto client = answers_.find(header.client);
    if (client == answers_.end()) return nullptr;
    auto& answers = client->second;
    const std::uint64_t lowest = header.id - header.behind;
    const auto keep = answers.lower_bound(lowest);
    if (keep != answers.begin()) {
        if (journal_ != nullptr) journal_->answers_seen(header.client, lowest - 1);
        answers.erase(answers.begin(), keep);
    }
    const auto known = answers.find(header.id);
    return known != answers.end() ? &known->second : nullptr;
}

void Hub::answer(PortId port, const RequestHeader& header, const StoreReply& reply) {
    const Bytes frame = encode_reply({header.client, header.id, reply.status}, reply.results);
    if (options_.reconnects && changes_something(header.op)) {
        auto& answers = answers_[header.client];
        answers[header.id] = frame;
        if (answers.size() > kAnswersMax) answers.erase(answers.begin());
        if (journal_ != nullptr) journal_->answered(header.client, header.id, payload_of(frame));
    }
    outbox_.to_port(port, FrameType::reply, payload_of(frame));
}

void Hub::answer_late(Store::Token token, const StoreReply& reply) {
    const auto waiting = waiting_.find(token.first);
    if (waiting == waiting_.end()) return;
    const PortId port = waiting->second.port;
    const Op op = waiting->second.ids.at(token.second);
    stop_waiting(token.first, token.second);
    answer(port, {token.first, token.second, 0, op}, reply);
}

void Hub::stop_waiting(std::uint64_t client, std::uint64_t id) {
    const auto waiting = waiting_.find(client);
    waiting->second.ids.erase(id);
    if (waiting->second.ids.empty()) waiting_.erase(waiting);
}

bool Hub::completed(const std::string& name, std::uint64_t round) const {
    const auto last = completed_.find(name);
    return last != completed_.end() && round <= last->second.fenced.round;
}

Result<void> Hub::on_fence(PortId port, std::string_view payload) {
    auto fence = decode<Fence>(payload);
    if (!fence) return std::unexpected(fence.error());
    const auto tell = [&](const Fenced& fenced) {
        outbox_.to_port(port, FrameType::fenced, payload_of(encode(fenced)));
    };
    if (fence->name.empty() || fence->name.size() > Fence::kNameBytesMax)
        return fail(Errc::invalid_input, "a fence's name has 1 to {} bytes", Fence::kNameBytesMax);
    if (fence->generation != generation()) {
        tell({fence->generation, fence->name, fence->round, false, "this generation is over", {}});
        return {};
    }
    if (completed(fence->name, fence->round)) {
        const Fenced& last = completed_.find(fence->name)->second.fenced;
        if (!options_.reconnects || last.round != fence->round)
            return fail(Errc::invalid_input, "came to a fence twice");
        tell(last);
        return {};
    }
    auto outcome = fences_.arrive(port, std::move(*fence));
    switch (outcome.kind) {
        case FenceTable::Outcome::Kind::pending:
            return {};
        case FenceTable::Outcome::Kind::failed:
            tell(outcome.fenced);
            return {};
        case FenceTable::Outcome::Kind::twice:
            return fail(Errc::invalid_input, "came to a fence twice");
        case FenceTable::Outcome::Kind::too_much:
            tell(outcome.fenced);
            end_fence(outcome.fenced);
            return {};
        case FenceTable::Outcome::Kind::complete:
            break;
    }
    Fence& sum = outcome.sum;
    std::ranges::sort(sum.entries, {}, &FenceEntry::rank);
    Fenced fenced{sum.generation, sum.name, sum.round, true, "", std::move(sum.entries)};
    if (entry_bytes(fenced.entries) > Fence::kBytesMax) {
        fenced.why = kTooManyBytes;
        fenced.complete = false;
        fenced.entries.clear();
    }
    end_fence(fenced);
    return {};
}

Result<void> Hub::on_unfence(std::string_view payload) {
    const auto unfence = decode<Unfence>(payload);
    if (!unfence) return std::unexpected(unfence.error());
    if (unfence->name.size() > Fence::kNameBytesMax || unfence->why.size() > kReasonBytesMax)
        return fail(Errc::invalid_input, "malformed unfence");
    if (unfence->generation != generation()) return {};
    if (unfence->name.empty()) {
        fail_fences(unfence->why);
        return {};
    }
    if (completed(unfence->name, unfence->round)) return {};
    end_fence({unfence->generation, unfence->name, unfence->round, false, unfence->why, {}});
    return {};
}

void Hub::end_fence(const Fenced& fenced) {
    const Bytes frame = encode(fenced);
    if (fenced.complete && frame.size() > Fence::kBytesMax)
        return end_fence({fenced.generation,
                          fenced.name,
                          fenced.round,
                          false,
                          "the ranks brought too many bytes; use the store",
                          {}});
    if (journal_ != nullptr)
        fenced.complete ? journal_->fence_completed(fenced) : journal_->fence_failed(fenced);
    if (fenced.complete) remember_completed(fenced);
    const auto ended = fences_.end(fenced);
    if (const auto old = fences_.take_forgotten(); old && journal_ != nullptr)
        journal_->failure_forgotten(old->first, old->second);
    SharedBytes shared;
    if (frame.size() >= kSharedBytesMin) shared = std::make_shared<const Bytes>(payload_of(frame));
    for (const auto& [id, port] : ports_) {
        if (port.kind == PortKind::subtree && shared)
            outbox_.share_with_port(id, FrameType::fenced, "", shared);
        else if (port.kind == PortKind::subtree)
            outbox_.to_port(id, FrameType::fenced, payload_of(frame));
        else if (port.rank != kNoRank)
            for (const Fenced& one : ended)
                outbox_.to_port(id, FrameType::fenced, payload_of(encode(one)));
    }
}

/// Who comes back to this round is told again.
void Hub::remember_completed(const Fenced& fenced) {
    Completed& last = completed_[fenced.name];
    completed_bytes_ -= entry_bytes(last.fenced.entries);
    completed_order_.erase(last.number);
    last = {fenced, ++completions_};
    if (!options_.reconnects) last.fenced.entries.clear();
    completed_bytes_ += entry_bytes(last.fenced.entries);
    completed_order_[last.number] = fenced.name;
    while (completed_.size() > kCompletedMax ||
           (completed_bytes_ > kCompletedBytesMax && completed_.size() > kCompletedKept)) {
        const auto oldest = completed_.find(completed_order_.begin()->second);
        completed_bytes_ -= entry_bytes(oldest->second.fenced.entries);
        if (journal_ != nullptr) journal_->completion_forgotten(oldest->first);
        completed_order_.erase(completed_order_.begin());
        completed_.erase(oldest);
    }
}

void Hub::begin(std::uint64_t generation, std::uint32_t ranks) {
    if (this->generation() != 0) fail_fences("a new generation began");
    store_->answer_all(stale_reply(generation));
    restore_generation(generation, ranks);
    if (journal_ != nullptr) journal_->began(generation);
}

void Hub::restore_generation(std::uint64_t generation, std::uint32_t ranks) {
    make_store();
    waiting_.clear();
    answers_.clear();
    completed_.clear();
    completed_order_.clear();
    completed_bytes_ = 0;
    fences_.begin(generation, ranks);
    fences_failed_ = false;
    for (auto& [id, port] : ports_) port.progress = {};
}

void Hub::restore_answer(std::uint64_t client, std::uint64_t id, Bytes reply) {
    answers_[client][id] = encode_frame(FrameType::reply, reply);
}

void Hub::restore_fence(Fenced fenced) {
    if (fenced.complete) return remember_completed(fenced);
    fences_failed_ |= fenced.name.empty();
    fences_.end(fenced);
}

void Hub::fail_fences(std::string why) {
    if (std::exchange(fences_failed_, true)) return;
    end_fence({generation(), "", 0, false, std::move(why), {}});
}

Heartbeat Hub::progress() const {
    ProgressSum sum;
    for (const auto& [id, port] : ports_) sum.add(port.progress);
    return sum.summary();
}

}  // namespace dtrun
