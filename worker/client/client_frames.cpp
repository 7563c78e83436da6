#include "worker/client/client.h"

namespace dtrun::embedded {
namespace {

RankInfo info_of(Welcome welcome) {
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
    member_.opened();
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
    requests_.on_closed();
    events_.close();
}

void Client::subscribe() {
    router_.on(FrameType::reply,
               [this](std::string_view payload) { return requests_.on_reply(payload); });
    router_.on(FrameType::fenced,
               [this](std::string_view payload) { return fences_.on_fenced(payload); });
    router_.on<Unfence>([](const Unfence&) {});  // for relays: nobody waits behind us
    router_.on<Heartbeat>([this](const Heartbeat& heartbeat) {
        if (keep_alive_) keep_alive_->on_heartbeat(heartbeat);
    });
    router_.on<BoardOpened>([this](const BoardOpened&) { board_came(); });
    router_.on<Refuse>(this, &Client::refused);
    router_.on<Welcome>(this, &Client::welcomed);
    router_.on<RankEvent>(this, &Client::event_came);
    router_.on<Stop>(this, &Client::stopped);
    if (is_member()) subscribe_member();
}

void Client::refused(const Refuse& refuse) {
    if (!refuse.later || !keep_alive_)
        return connection_.close({DTRUN_REFUSED, fmt::format("refused: {}", refuse.reason)});
    keep_alive_->on_refused();
    connection_.shut_down();
}

void Client::welcomed(Welcome welcome) {
    requests_.direct_store().offer(welcome);
    takes_stalls_ = welcome.stalls;
    if (role_ == Role::helper) {
        membership_.welcome();
    } else if (in_step()) {
        RankInfo info = membership_.rank_info();  // Slurm has said the rest
        info.generation = welcome.generation;
        membership_.welcome(std::move(info));
    } else if (!membership_.is_placed()) {
        membership_.welcome(info_of(std::move(welcome)));
    } else if (membership_.move(info_of(std::move(welcome)))) {
        fences_.begin(generation());
        events_.begin(generation());
        sections_.clear();  // as our agent does
    }
    connection_.changed();
}

/// The descriptors have come with it. Without them there are only frames that tell of changes.
void Client::board_came() {
    std::vector<Fd> descriptors = connection_.take_descriptors();
    if (descriptors.size() == 2) changes_.map(descriptors[0], std::move(descriptors[1]));
}

void Client::event_came(RankEvent event) {
    if (event.kind == RankEvent::Kind::shutdown && launcher() == Launcher::agent)
        job_ended_ = event.why;
    if (event.kind == RankEvent::Kind::membership) {
        if (event.generation <= generation()) return;  // it has begun
        changes_.note({generation(), event.generation, event.reason, 0, 0});
        if (is_over()) {
            // Others may never do what is waited for here.
            requests_.end_all(over());
            fences_.begin(event.generation);
        }
    }
    add_event(std::move(event));
}

void Client::stopped(Stop stop) {
    if (std::exchange(ending_, true)) return;
    job_ended_ = stop.why;
    add_event({RankEvent::Kind::shutdown, generation(), stop.grace_ms, std::move(stop.why), {}});
}

void Client::add_event(RankEvent event) {
    events_.add(std::move(event));
    connection_.changed();
}

}  // namespace dtrun::embedded
