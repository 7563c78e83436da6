#include "rendezvous/daemon/daemon.h"

#include "base/freed_memory.h"
#include "base/log.h"
#include "base/loop/net.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "rendezvous/exchange/store_replies.h"
#include "rendezvous/links/refuse.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/gathering.h"
#include "rendezvous/wire/job_key.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/rank_messages.h"

#include <sys/eventfd.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <tuple>

namespace dtrun {
namespace {

/// How long a restarted daemon waits for its members to reconnect.
constexpr std::chrono::seconds kReturnLimit{15};
constexpr std::chrono::seconds kGoodbyeLimit{2};
constexpr std::chrono::seconds kLastWritesLimit{3};
/// When stores have become smaller by so much, memory is given back to the system, which takes milliseconds.
constexpr std::uint64_t kGivenBack = 16u << 20;
constexpr std::chrono::seconds kGiveBackPause{10};

}  // namespace

Daemon::Daemon(asio::any_io_executor executor, DaemonOptions options)
    : executor_(executor),
      options_(std::move(options)),
      durable_(executor),
      detector_(executor, options_.heartbeat_timeout),
      timer_(executor),
      released_(executor, Timer::time_point::max()),
      idle_(executor, Timer::time_point::max()),
      heart_(executor),
      tasks_(executor) {
    const auto secret_of = [this](const JobId& job) {
        return std::optional(job_secret_of(options_.secret, job));
    };
    const auto admit = [this](const JobId& job, Connection connection) {
        this->admit(job, std::move(connection));
    };
    ServerOptions server;
    server.encrypt = options_.encrypt;
    server_ = std::make_unique<Server>(executor, secret_of, admit, server);
}

void Daemon::start() {
    if (db_) heart_.spawn(release_when_durable());
    heart_.spawn(detector_.run([this] {
        beat();
        return Pace::alert;
    }));
}

Result<void> Daemon::restore() {
    if (options_.state_directory.empty()) return {};
    auto db = StateDb::open(options_.state_directory);
    if (!db) return fail(db.error(), "--state");
    db_ = std::move(*db);
    const int bell = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell < 0) return fail(Errc::internal, "--state: eventfd: {}", std::strerror(errno));
    durable_.assign(bell);
    db_->notify([bell] { (void)::eventfd_write(bell, 1); });
    const Deadline now = Clock::now();
    for (const SavedJob& record : db_->jobs()) {
        const ServedJob& job =
            jobs_.add(record.id, std::make_unique<ServedJob>(record, job_options(record.name),
                                                             static_cast<Outbox&>(*this), *db_, now,
                                                             kReturnLimit));
        if (job.idle()) {
            db_->drop_job(record.id);
            jobs_.erase(record.id);
            continue;
        }
        log::info("job {}: goes on in generation {} with {}", escaped(record.name),
                  job.generation(), plural(record.members.size(), "member"));
    }
    for (const DamagedJob& damaged : db_->damaged()) {
        ServedJob::Options options = job_options(damaged.name);
        options.damage = damaged.why;
        if (damaged.name.empty())
            log::error(
                "a job whose name is lost is refused, until nobody has come to it for the time of "
                "--keep-unused: {}",
                damaged.why);
        else
            log::error("job {}: refused until it is dropped: {}", escaped(damaged.name),
                       damaged.why);
        jobs_.add(damaged.id,
                  std::make_unique<ServedJob>(damaged.id, std::move(options),
                                              static_cast<Outbox&>(*this), db_.get(), now));
    }
    // Nobody was listened to meanwhile.
    const Deadline ready = Clock::now();
    jobs_.for_each([&](ServedJob& job) { job.stood_still(now, ready); });
    flush();
    arm_timer();
    return {};
}

Result<std::uint16_t> Daemon::listen(const std::vector<std::string>& addresses,
                                     std::uint16_t port) {
    return server_->listen(addresses, port);
}

Result<std::uint16_t> Daemon::adopt(int fd) {
    return server_->adopt(fd);
}

void Daemon::admit(const JobId& job, Connection connection) {
    if (stopping_) return;
    const PeerId id = ++last_peer_;
    const std::string remote = remote_address(connection.socket);
    const std::string local = local_address(connection.socket);
    auto peer = std::make_shared<Peer>(std::move(connection), job, *this);
    peer->remote = remote;
    peer->local = local;
    peers_[id] = std::move(peer);
    tasks_.spawn(run_peer(id));
}

asio::awaitable<void> Daemon::run_peer(PeerId id) {
    Peer& peer = *peers_.at(id);
    TaskGroup writer(executor_);
    writer.spawn(peer.link.run_writer());
    const std::function<Result<void>(const FrameView&)> handle =
        [this, id, &peer](const FrameView& frame) { return on_frame(id, peer, frame); };
    const auto served = co_await peer.link.serve(handle, &peer);
    const Error& why = served.error();
    const bool is_wrong = why.code == Errc::invalid_input || why.code == Errc::denied;
    const ServedJob* const its = jobs_.find(peer.job);
    const std::string who =
        its != nullptr && !its->name().empty() ? "job " + escaped(its->name()) + ": " : "";
    // Who only asks for a value, or for the daemon's status, comes and goes all the time.
    if (peer.is_member || is_wrong)
        log::info("{}connection from {}: {}", who, peer.remote, why.message);
    else
        log::debug("{}connection from {}: {}", who, peer.remote, why.message);
    if (is_wrong) co_await refuse(peer.link, why.message);
    if (ServedJob* job = jobs_.find(peer.job); job != nullptr && peer.entered && !stopping_)
        job->closed(id, Clock::now());
    peer.link.close();
    co_await writer.join();
    const JobId job = peer.job;
    holding_.erase(id);
    peers_.erase(id);
    if (!stopping_) changed(job);
    look_for_end();
}

bool Daemon::Peer::is_full() const {
    return held_bytes > Link::kFullBytes || (daemon.db_ && daemon.db_->is_behind());
}

asio::awaitable<void> Daemon::Peer::room() {
    while (link.is_open() && is_full()) co_await daemon.released_.async_wait(use_tuple);
}

Result<void> Daemon::on_frame(PeerId id, Peer& peer, const FrameView& frame) {
    if (peer.is_leaving) return {};
    received_bytes_ += FrameHeader::kBytes + frame.payload.size();
    changed(peer.job);
    if (!peer.entered) return first_frame(id, peer, frame);
    if (frame.type == FrameType::signal) return on_signal(peer, frame.payload);
    ServedJob* job = jobs_.find(peer.job);
    if (job == nullptr) return fail(Errc::denied, "the job is over");
    if (frame.type == FrameType::request) count_request(frame.payload);
    const Result<void> done = job->frame(id, frame, Clock::now());
    if (job->is_dropped()) retire(peer.job);
    return done;
}

Result<void> Daemon::first_frame(PeerId id, Peer& peer, const FrameView& frame) {
    const auto enter = decode<Enter>(frame.payload);
    if (frame.type != FrameType::enter || !enter)
        return fail(Errc::invalid_input, "a connection's first frame is enter");
    if (job_id_of(enter->job_name) != peer.job)
        return fail(Errc::denied, "the job's name is not the one that was authenticated");
    if (enter->slots > 0) retire(peer.job);
    ServedJob& job = job_for(peer.job, enter->job_name);
    peer.entered = true;
    peer.is_member = enter->slots > 0;
    return job.enter(id, *enter, peer.remote, peer.local, Clock::now());
}

/// A member reports that Ctrl-Z is about to stop it (SIGTSTP), and that it runs again (SIGCONT).
Result<void> Daemon::on_signal(Peer& peer, std::string_view payload) {
    const auto signal = decode<SignalRanks>(payload);
    if (!signal || (signal->signal != SIGTSTP && signal->signal != SIGCONT))
        return fail(Errc::invalid_input, "malformed signal");
    peer.is_stopped = signal->signal == SIGTSTP;
    peer.link.set_peer_stopped(peer.is_stopped);
    return {};
}

ServedJob::Options Daemon::job_options(const std::string& name) {
    ServedJob::Options options;
    options.name = name;
    options.return_limit = options_.heartbeat_timeout;
    options.status = [this, name] { return status(name); };
    options.refusal = [this](Op op, std::size_t bytes) { return refusal(op, bytes); };
    options.keep_unused = options_.keep_unused;
    return options;
}

/// How a change of a store is refused; nothing: it is not.
std::optional<StoreReply> Daemon::refusal(Op op, std::size_t bytes) {
    if (db_ && db_->is_removed()) return refused("the daemon's state was removed from its disk");
    if (!adds_something(op)) return std::nullopt;
    if (db_ && !db_->fits(bytes)) return full("the daemon's disk is full");
    if (store_bytes_ + bytes > options_.store_bytes_max)
        store_bytes_ -= std::min(store_bytes_, jobs_.forget_histories());
    if (store_bytes_ + bytes > options_.store_bytes_max)
        return full(fmt::format(
            "the stores of all jobs have {} bytes, and the daemon's limit is {} (--store-limit)",
            store_bytes_, options_.store_bytes_max));
    store_bytes_ += bytes;
    return std::nullopt;
}

/// What happened to jobs in this turn is submitted with what others submit now.
void Daemon::save_touched() {
    for (const JobId& id : touched_)
        if (ServedJob* const touched = jobs_.find(id)) touched->save();
}

/// Frees the name of a job that is over or dropped. Clients of its store are disconnected; when they connect
/// again they get the store of the next job of that name.
void Daemon::retire(const JobId& id) {
    ServedJob* const job = jobs_.find(id);
    if (job == nullptr || !job->is_over()) return;
    save_touched();
    job->retire();
    if (db_) db_->drop_job(id);  // with what tells of it, which flush() releases
    flush();
    for (const auto& [number, peer] : peers_) {
        if (peer->job != id || !peer->entered) continue;
        job->closed(number, Clock::now());
        peer->entered = false;
        peer->is_leaving = true;
        tasks_.spawn(let_go(peer));
    }
    jobs_.erase(id);
}

ServedJob& Daemon::job_for(const JobId& id, const std::string& name) {
    if (ServedJob* const job = jobs_.find(id)) return *job;
    return jobs_.add(id,
                     std::make_unique<ServedJob>(id, job_options(name), static_cast<Outbox&>(*this),
                                                 db_.get(), Clock::now()));
}

/// To be called after every event of a job: settle() runs once for all events that have arrived by
/// then.
void Daemon::changed(const JobId& id) {
    if (touched_.empty() || touched_.back() != id) touched_.push_back(id);
    if (stopping_ || std::exchange(settle_soon_, true)) return;
    asio::post(executor_, [this] {
        if (!stopping_) settle();
    });
}

void Daemon::settle() {
    settle_soon_ = false;
    for (const JobId& id : std::exchange(touched_, {})) {
        ServedJob* const job = jobs_.find(id);
        if (job == nullptr) continue;
        job->save();
        jobs_.recount(id);
        if (!job->idle()) continue;
        if (db_) db_->drop_job(id);
        jobs_.erase(id);
    }
    store_bytes_ = jobs_.bytes();
    give_memory_back();
    flush();
    arm_timer();
    look_for_end();
}

/// What jobs had that have gone lies among what others have, and would stay with this process.
void Daemon::give_memory_back() {
    most_bytes_ = std::max(most_bytes_, store_bytes_);
    if (most_bytes_ - store_bytes_ < kGivenBack || Clock::now() < give_back_again_) return;
    give_back_again_ = after(kGiveBackPause);
    most_bytes_ = store_bytes_;
    give_freed_memory_back();
}

/// Hands recorded changes to the disk's thread and sends held frames whose changes are on disk.
void Daemon::flush() {
    if (!db_) return;
    db_->submit();
    release();
}

/// Sends held frames whose changes are on disk.
void Daemon::release() {
    for (auto at = holding_.begin(); at != holding_.end();) {
        Peer& peer = *peers_.at(*at);
        while (!peer.held.empty() && peer.held.front().number <= db_->durable()) {
            Held frame = std::move(peer.held.front());
            peer.held.pop_front();
            peer.held_bytes -= frame.bytes();
            send(peer, frame.type, frame.payload, frame.rest);
        }
        at = peer.held.empty() ? holding_.erase(at) : std::next(at);
    }
    released_.cancel();
}

/// The disk's thread rings, and does not post(): that holds the loop's own lock while it wakes the loop, which
/// then goes to sleep again for that lock.
asio::awaitable<void> Daemon::release_when_durable() {
    eventfd_t times = 0;
    const auto buffer = asio::buffer(&times, sizeof times);
    boost::system::error_code stopped;
    while (!stopped) {
        std::tie(stopped, std::ignore) = co_await durable_.async_read_some(buffer, use_tuple);
        release();
    }
}

void Daemon::hold(PeerId id, Held frame) {
    Peer& peer = *peers_.at(id);
    frame.number = db_->submitted() + 1;  // the batch that is being recorded
    peer.held_bytes += frame.bytes();
    peer.held.push_back(std::move(frame));
    holding_.insert(id);
}

void Daemon::to_peer(PeerId id, FrameType type, std::string_view payload) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return;
    if (db_) return hold(id, {0, type, Bytes(payload), nullptr});
    send(*peer->second, type, payload);
}

void Daemon::tell_peer(PeerId id, FrameType type, std::string_view payload) {
    if (const auto peer = peers_.find(id); peer != peers_.end()) send(*peer->second, type, payload);
}

void Daemon::share_with_peer(PeerId id, FrameType type, std::string_view payload,
                             const SharedBytes& rest) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return;
    if (db_) return hold(id, {0, type, Bytes(payload), rest});
    send(*peer->second, type, payload, rest);
}

void Daemon::send(Peer& peer, FrameType type, std::string_view payload, const SharedBytes& rest) {
    sent_bytes_ += FrameHeader::kBytes + payload.size() + (rest ? rest->size() : 0);
    if (rest)
        peer.link.send_soon(type, payload, rest);
    else
        peer.link.send_soon(type, payload);
}

void Daemon::to_root(FrameType, std::string_view) {}  // the daemon is the root

void Daemon::arm_timer() {
    const Deadline next = jobs_.next_deadline();
    if (next == Deadline::max() || timer_.expiry() == next) return;
    timer_.expires_at(next);
    timer_.async_wait([this](boost::system::error_code error) {
        if (error) return;
        timer_.expires_at(Deadline::max());  // nothing is armed: no job asks for this time
        look_for_pause();
        const Deadline now = Clock::now();
        for (const JobId& id : jobs_.due(now)) {
            jobs_.find(id)->tick(now);
            jobs_.recount(id);
            changed(id);
        }
        arm_timer();
    });
}

/// To be called before anything that comes of time that has passed, and at every beat, so that each pause is seen.
void Daemon::look_for_pause() {
    const Deadline awake = detector_.awake_since();
    const Deadline from = std::max(ran_at_, next_beat_);
    if (awake > from) jobs_.for_each([&](ServedJob& job) { job.stood_still(from, awake); });
    ran_at_ = Clock::now();
}

void Daemon::beat() {
    look_for_pause();
    next_beat_ = ran_at_ + kHeartbeatInterval;
    if (db_) db_->tell_of_disk();
    if (db_ && db_->write_served(kServedStep)) {
        jobs_.for_each([](ServedJob& job) { job.save_use(); });
        save_touched();
        flush();
    }
    Heartbeat heartbeat;
    heartbeat.timeout_ms = static_cast<std::uint32_t>(
        std::min<std::int64_t>(options_.heartbeat_timeout.count(), UINT32_MAX));
    const Bytes frame = encode(heartbeat);
    std::map<JobId, Bytes> of_members;
    std::vector<std::pair<PeerId, std::chrono::milliseconds>> silent;
    for (const auto& [id, peer] : peers_) {
        if (peer->is_member) {
            const auto [own, is_new] = of_members.try_emplace(peer->job, frame);
            const ServedJob* const job = is_new ? jobs_.find(peer->job) : nullptr;
            const auto gathering = job != nullptr ? job->gathering(ran_at_) : std::nullopt;
            if (gathering) own->second = encode_heartbeat(heartbeat.timeout_ms, *gathering);
            send(*peer, FrameType::heartbeat, payload_of(own->second));
        } else {
            send(*peer, FrameType::heartbeat, payload_of(frame));
        }
        const auto silence = detector_.lost_with_machine(peer->link);
        if (silence && !peer->is_stopped) silent.emplace_back(id, *silence);
    }
    for (const auto& [id, silence] : silent) {
        Peer& peer = *peers_.at(id);
        const std::string why = describe_silence(silence);
        log::info("connection from {}: {}", peer.remote, why);
        if (ServedJob* job = jobs_.find(peer.job); job != nullptr && peer.entered)
            job->silent(id, why, Clock::now());
        peer.link.close();
        changed(peer.job);
    }
}

asio::awaitable<void> Daemon::flush_peer(std::shared_ptr<Peer> peer) {
    while (peer->link.is_open() && !peer->held.empty())
        co_await peer->daemon.released_.async_wait(use_tuple);
    co_await peer->link.flush();
}

/// Sends the peer what is held and queued for it, then the end of the stream; the peer may
/// reconnect.
asio::awaitable<void> Daemon::let_go(std::shared_ptr<Peer> peer) {
    co_await flush_peer(peer);
    peer->link.shut_down_sending();
}

void Daemon::look_for_end() {
    if (stopping_ || (jobs_.empty() && peers_.empty())) idle_.cancel();
}

asio::awaitable<void> Daemon::idle() {
    while (!stopping_ && (!jobs_.empty() || !peers_.empty())) co_await idle_.async_wait(use_tuple);
}

asio::awaitable<bool> Daemon::stop(std::string why) {
    server_->stop();
    if (!db_) jobs_.for_each([&](ServedJob& job) { job.end(why); });
    const Refuse kept{"dtrun serve was stopped; its jobs are kept", true};
    const Bytes goodbye = encode(kept);
    TaskGroup flushes(executor_);
    for (const auto& [id, peer] : peers_)
        if (db_) to_peer(id, FrameType::refuse, payload_of(goodbye));
    jobs_.for_each([](ServedJob& job) { job.save(); });
    jobs_.for_each([](ServedJob& job) { job.save_use(); });
    if (db_) db_->write_served(std::chrono::seconds(1));
    flush();
    for (const auto& [id, peer] : peers_) flushes.spawn(flush_peer(peer));
    {
        Timer limit(executor_, kGoodbyeLimit);
        limit.async_wait([&flushes](boost::system::error_code error) {
            if (!error) flushes.stop();
        });
        co_await flushes.join();
    }
    stopping_ = true;  // connections that end from here on are no events of their jobs
    look_for_end();
    for (const auto& [id, peer] : peers_) {
        peer->link.shut_down_sending();
        peer->link.close();
    }
    heart_.stop();
    timer_.cancel();
    released_.cancel();
    co_await heart_.join();
    co_await server_->join();
    co_await tasks_.join();  // run_peer() ends, since its link was closed
    const bool is_kept = !db_ || db_->stop(after(kLastWritesLimit));
    db_.reset();
    if (!is_kept)
        log::error(
            "--state: {}: the disk is full or does not answer: changes of which nobody was told "
            "are lost",
            options_.state_directory);
    co_return is_kept;
}

}  // namespace dtrun
