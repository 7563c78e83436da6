#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/client/client.h"

namespace dtrun::embedded {
namespace {

Place place_of(Welcome welcome) {
    return {.job = std::move(welcome.job),
            .host_name = std::move(welcome.host_name),
            .generation = welcome.generation,
            .rank = std::to_underlying(welcome.rank),
            .world_size = welcome.world_size,
            .local_rank = welcome.local_rank,
            .local_size = welcome.local_size,
            .cross_rank = welcome.cross_rank,
            .cross_size = welcome.cross_size,
            .node_rank = welcome.node_rank,
            .node_count = welcome.node_count};
}

}  // namespace

void Client::on_open(int socket) {
    events_.watch(socket);
    if (keep_alive_) keep_alive_->on_open();
}

void Client::on_bytes() {
    if (keep_alive_) keep_alive_->on_bytes();
}

/// A daemon is dialled again; any other connection is closed for good.
bool Client::on_lost() {
    events_.unwatch();
    if (keep_alive_) keep_alive_->on_lost();
    return keep_alive_ && !ending_;
}

void Client::on_closed() {
    if (keep_alive_) keep_alive_->on_closed();
    events_.close();
}

Result<void> Client::on_frame(const FrameView& frame) {
    switch (frame.type) {
        case FrameType::reply:
            return requests_.on_reply(frame.payload);
        case FrameType::fenced:
            return fences_.on_fenced(frame.payload);
        case FrameType::unfence:
            return {};  // for relays: nobody waits behind us
        case FrameType::heartbeat:
            return on_heartbeat(frame.payload);
        case FrameType::welcome:
            return on_welcome(frame.payload);
        case FrameType::event:
            return on_event(frame.payload);
        case FrameType::page:
            return on_page();
        case FrameType::assign:
            return on_assign(frame.payload);
        case FrameType::propose:
            return on_propose(frame.payload);
        case FrameType::stop:
            return on_stop(frame.payload);
        case FrameType::refuse: {
            const auto refuse = decode<Refuse>(frame.payload);
            if (!refuse) return std::unexpected(refuse.error());
            if (refuse->later && keep_alive_) {
                keep_alive_->on_refused();
                connection_.shut_down();
            } else {
                connection_.close({DTRUN_REFUSED, fmt::format("refused: {}", refuse->reason)});
            }
            return {};
        }
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

Result<void> Client::on_heartbeat(std::string_view payload) {
    const auto heartbeat = decode<Heartbeat>(payload);
    if (!heartbeat) return std::unexpected(heartbeat.error());
    if (keep_alive_) keep_alive_->on_heartbeat(*heartbeat);
    return {};
}

Result<void> Client::on_welcome(std::string_view payload) {
    auto welcome = decode<Welcome>(payload);
    if (!welcome) return std::unexpected(welcome.error());
    if (role_ == Role::helper) {
        standing_.welcome();
    } else if (in_step()) {
        Place place = standing_.place();  // Slurm has said the rest
        place.generation = welcome->generation;
        standing_.welcome(std::move(place));
    } else if (!standing_.is_placed()) {
        standing_.welcome(place_of(std::move(*welcome)));
    } else if (standing_.move(place_of(std::move(*welcome)))) {
        fences_.begin(generation());
        events_.begin(generation());
        sections_.clear();  // as our agent does
    }
    connection_.changed();
    return {};
}

/// The descriptors have come with it. Without them there are only frames that tell of changes.
Result<void> Client::on_page() {
    std::vector<Fd> descriptors = connection_.take_descriptors();
    if (descriptors.size() == 2) changes_.map(descriptors[0], std::move(descriptors[1]));
    return {};
}

Result<void> Client::on_event(std::string_view payload) {
    auto event = decode<Event>(payload);
    if (!event) return std::unexpected(event.error());
    if (event->kind == Event::Kind::shutdown && launcher() == Launcher::agent)
        job_ended_ = event->why;
    if (event->kind == Event::Kind::membership) {
        if (event->generation <= generation()) return {};  // it has begun
        changes_.note({generation(), event->generation, event->reason, 0, 0});
        if (is_over()) {
            // Others may never do what is waited for here.
            requests_.end_all(over());
            fences_.begin(event->generation);
        }
    }
    add_event(std::move(*event));
    return {};
}

Result<void> Client::on_assign(std::string_view payload) {
    const auto assign = decode<Assign>(payload);
    if (!assign) return std::unexpected(assign.error());
    if (!is_member()) return {};
    const auto is_new = standing_.assign(*assign);
    if (!is_new) return std::unexpected(is_new.error());
    if (!*is_new) return {};
    fences_.begin(generation());
    events_.begin(generation());
    connection_.changed();
    return {};
}

Result<void> Client::on_propose(std::string_view payload) {
    auto propose = decode<Propose>(payload);
    if (!propose) return std::unexpected(propose.error());
    if (standing_.propose(propose->generation)) {
        changes_.note({generation(), propose->generation, ChangeReason::none, 0, 0});
        add_event({Event::Kind::membership, propose->generation, 0, std::move(propose->why), {}});
    }
    return {};
}

Result<void> Client::on_stop(std::string_view payload) {
    auto stop = decode<Stop>(payload);
    if (!stop) return std::unexpected(stop.error());
    if (ending_) return {};
    ending_ = true;
    job_ended_ = stop->why;
    add_event({Event::Kind::shutdown, generation(), stop->grace_ms, std::move(stop->why), {}});
    return {};
}

void Client::add_event(Event event) {
    events_.add(std::move(event));
    connection_.changed();
}

}  // namespace dtrun::embedded
