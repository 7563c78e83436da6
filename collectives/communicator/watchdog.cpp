#include "collectives/communicator/watchdog.h"

#include "collectives/quiet_thread.h"
#include "collectives/user_text.h"

#include <algorithm>
#include <charconv>
#include <map>

namespace dtrun::collectives {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLook{500};
constexpr milliseconds kStalled{1'000};
/// A message that was sent, and is not received, may be on its way for so long without the receiver's help.
constexpr milliseconds kSentWithin{10'000};
constexpr std::uint32_t kAskedMax = 64;

/// Behind a rank's recent calls if it has left the last of them.
constexpr std::string_view kIdle = "idle\n";
/// A rank lists its recent calls as lines "NUMBER TEXT", and may say that it is idle.
std::pair<std::uint64_t, std::string_view> number_and_text(std::string_view note) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(note.data(), note.data() + note.size(), number);
    if (error != std::errc()) return {0, {}};
    note.remove_prefix(static_cast<std::size_t>(end - note.data()));
    if (note.starts_with(' ')) note.remove_prefix(1);
    return {number, note.substr(0, note.find('\n'))};
}

/// How a rank calls a message in what it tells of it, before its length in bytes.
std::string message_of(std::string_view way, std::uint32_t peer, std::uint64_t number) {
    return fmt::format("{} {} {} ", way, peer, number);
}

/// For one that writes and others that read. \return what it was
std::uint64_t count_up(std::atomic<std::uint64_t>& count) {
    const std::uint64_t before = count.load(std::memory_order_relaxed);
    count.store(before + 1, std::memory_order_relaxed);
    return before;
}

/// The number behind "WAY RANK " on a line of its own; 0: it is not there.
std::uint64_t number_of(std::string_view lines, std::string_view way, std::uint32_t rank) {
    const std::string begin = fmt::format("\n{} {} ", way, rank);
    const std::size_t at = lines.find(begin);
    return at == lines.npos ? 0 : number_and_text(lines.substr(at + begin.size())).first;
}

/// Whether a call that others have described needs all ranks, before any of them can go on.
bool needs_all(std::string_view description) {
    return description.find("(root ") == description.npos &&
           description.find(", root ") == description.npos;
}

std::map<std::uint64_t, std::string_view> calls_of(std::string_view lines) {
    std::map<std::uint64_t, std::string_view> calls;
    while (!lines.empty()) {
        const auto [number, text] = number_and_text(lines);
        calls.emplace(number, text);
        const std::size_t end = lines.find('\n');
        lines.remove_prefix(end == lines.npos ? lines.size() : end + 1);
    }
    return calls;
}

}  // namespace

Watchdog::Watchdog(Options options)
    : options_(std::move(options)),
      timeout_(options_.timeout),
      stall_(options_.stall),
      blame_({options_.store, options_.prefix, options_.rank, options_.size, options_.name}),
      messages_(options_.size) {
    if (options_.size > 1) thread_ = quiet_thread([this] { run(); });
}

Watchdog::~Watchdog() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    stop_.notify_one();
    thread_.join();
    take_back_whereabouts();
    stall_.end();
}

std::uint64_t Watchdog::begin(const Call& call) {
    // Whoever reads what follows sees that the last operation has ended.
    std::atomic_thread_fence(std::memory_order_release);
    std::uint64_t number = number_.load(std::memory_order_relaxed);
    if (call.collective) {
        number_.store(++number, std::memory_order_relaxed);
        calls_[number % kRecent].store(call);
    } else {
        Call counted = call;
        if (call.sends.peer != Message::kNone)
            counted.sends.number =
                count_up(messages_[static_cast<std::size_t>(call.sends.peer)].sent);
        if (call.receives.peer != Message::kNone)
            counted.receives.number =
                count_up(messages_[static_cast<std::size_t>(call.receives.peer)].received);
        message_.store(counted);
    }
    collective_.store(call.collective, std::memory_order_relaxed);
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    return digest(call, number);
}

void Watchdog::end() {
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void Watchdog::withdraw(const Call& call) {
    if (call.sends.peer != Message::kNone)
        --messages_[static_cast<std::size_t>(call.sends.peer)].sent;
    if (call.receives.peer != Message::kNone)
        --messages_[static_cast<std::size_t>(call.receives.peer)].received;
    if (!call.collective) return;
    const std::lock_guard lock(told_mutex_);
    const bool told = told_ == number_;
    --number_;
    if (!told) return;
    told_ = number_;
    idle_after_ = idle_at_ = 0;
    // Other ranks would take the withdrawn call for the next one, which gets the same number.
    tell(at_key(), recent());
}

void Watchdog::run() {
    std::uint64_t seen = 0;
    Clock::time_point since;
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, kLook, [this] { return stopping_; })) {
        const std::uint64_t version = version_.load(std::memory_order_acquire);
        if (version != seen) {
            since = Clock::now();
            lock.unlock();
            take_back_whereabouts();
            stall_.end();
            lock.lock();
        }
        seen = version;
        const auto span = std::chrono::duration_cast<milliseconds>(Clock::now() - since);
        const bool is_idle = version % 2 == 0;
        if (verdict_ || (!is_idle && span + kLook < kStalled)) continue;
        lock.unlock();
        if (is_idle)
            tell_idle(version, span);
        else
            look(version, span);
        lock.lock();
    }
}

void Watchdog::look(std::uint64_t version, milliseconds since) {
    const std::uint64_t number = number_.load(std::memory_order_relaxed);
    const Call call = collective_.load(std::memory_order_relaxed) ? calls_[number % kRecent].load()
                                                                  : message_.load();
    const std::string ours = recent();
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version_.load(std::memory_order_relaxed) != version) return;  // it is over
    if (const milliseconds timeout = timeout_; timeout.count() > 0 && since > timeout) {
        std::string why = fmt::format("{} took longer than {:.3g} s", describe(call),
                                      std::chrono::duration<double>(timeout).count());
        if (call.collective) why += absent(number);
        return give_up(Errc::timed_out, std::move(why));
    }
    if (!goes_on()) return;
    tell_whereabouts(describe(call));
    const bool same = call.collective ? compare_calls(version, number, ours)
                                      : compare_messages(call, number, since);
    if (same && stall_.is_due(since)) look_for_stall(call, number, since);
}

/// \return false: ranks disagree, the store does not answer, or the operation is over
bool Watchdog::compare_calls(std::uint64_t version, std::uint64_t number, std::string_view ours) {
    if (!tell_messages()) return false;
    {
        const std::lock_guard lock(told_mutex_);
        if (version_.load(std::memory_order_relaxed) != version) return false;  // it is over
        told_ = number;
        if (!tell(at_key(), std::string(ours))) return false;
    }
    // Each rank compares itself with its neighbour and with rank 0, which finds any disagreement.
    for (const std::uint32_t other : {(options_.rank + 1) % options_.size, 0u})
        if (other != options_.rank && disagrees(other, ours)) return false;
    return true;
}

/// Says once that this rank has left its last operation, and which messages it has begun, since others may still be in
/// them: they would take it for one that has not come, or that waits as they do.
void Watchdog::tell_idle(std::uint64_t version, milliseconds since) {
    const std::lock_guard lock(told_mutex_);
    if (version == idle_at_ || stall_.limit().count() == 0) return;
    const std::uint64_t number = number_.load(std::memory_order_relaxed);
    const bool leaves = number != idle_after_;
    const bool is_known = leaves && told_ == number;  // to others, as one that this rank is in
    // In an operation with a root this rank may have been done before anybody could see it there.
    const bool has_root = leaves && calls_[number % kRecent].load().root >= 0;
    if (!is_known && since < (has_root ? kStalled : stall_.limit() / 2)) return;
    std::vector<KeyStore::Pair> notes;
    if (std::string counts = message_counts(); !counts.empty())
        notes.emplace_back(key("messages", options_.rank), std::move(counts));
    if (leaves) notes.emplace_back(at_key(), recent() + std::string(kIdle));
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version_.load(std::memory_order_relaxed) != version) return;  // there is a next one
    told_ = idle_after_ = number;
    idle_at_ = version;
    // Nothing waits here, so that a store which has ended is no reason to give up.
    if (!notes.empty() && options_.store->find(notes.front().first))
        static_cast<void>(options_.store->set(notes));
}

/// Says so if ranks have not come to the operation under way: this rank for itself, and the first of those that wait
/// for all.
void Watchdog::look_for_stall(const Call& call, std::uint64_t number, milliseconds since) {
    Presence known;
    known.waiting = {options_.rank};
    std::string what = describe(call);
    if (call.collective) {
        auto asked = presence(number);
        if (!asked) return;
        known = std::move(*asked);
        what += fmt::format(", operation {} of {} ranks", number, options_.size);
    } else {
        for (const auto& [their_way, message] :
             {std::pair("from", call.sends), std::pair("to", call.receives)})
            if (message.peer != Message::kNone && !is_there(message, their_way))
                known.missing.push_back(static_cast<std::uint32_t>(message.peer));
    }
    const auto& [waiting, missing, among, speaks] = known;
    if (missing.empty()) return stall_.all_there(since);
    std::string absent =
        fmt::format("{} {} not come", name_all(missing), missing.size() == 1 ? "has" : "have");
    if (!among.empty()) absent += fmt::format(", of {} that were asked", among);
    std::vector<std::uint32_t> named;
    for (const std::uint32_t rank : waiting) named.push_back(options_.ranks[rank]);
    std::string line;
    if (speaks)
        line = fmt::format("{}: {} {} waited for {} s; {}", what, name_ranks(named),
                           named.size() == 1 ? "has" : "have",
                           std::chrono::duration_cast<std::chrono::seconds>(since).count(), absent);
    stall_.tell(fmt::format("{}; {}", what, absent), line, since);
}

bool Watchdog::tell(const std::string& key, const std::string& text) {
    const KeyStore::Pair note{key, text};
    const auto set = options_.store->set({&note, 1});
    // The job is ending, or this membership is over: nobody will come any more.
    if (!set && set.error().code == Errc::closed) give_up(Errc::closed, set.error().message);
    return set.has_value();
}

/// The last operations of this rank, the newest first, for the others to read.
std::string Watchdog::recent() const {
    const std::uint64_t last = number_.load(std::memory_order_relaxed);
    std::string lines;
    for (std::uint64_t back = 0; back < std::min<std::uint64_t>(kRecent, last); ++back) {
        const std::uint64_t number = last - back;
        lines += fmt::format("{} {}\n", number, describe(calls_[number % kRecent].load()));
    }
    return lines;
}

/// Whether the store answers and no rank has given up; if one has, this rank gives up, too.
bool Watchdog::goes_on() {
    const auto failed = blame_.first_note();
    if (!failed) {
        if (failed.error().code == Errc::closed) give_up(Errc::closed, failed.error().message);
        return false;
    }
    if (!*failed) return true;
    const std::uint32_t other = **failed;
    blame_.put_on(other);
    const Error error = blame_.follow(other, "has failed");
    give_up(error.code, error.message);
    return false;
}

/// Says in what this rank waits, to ranks that wait for it in another group.
void Watchdog::tell_whereabouts(const std::string& call) {
    if (!options_.whereabouts || std::exchange(waits_in_, call) == call) return;
    tell(options_.whereabouts(options_.rank), fmt::format("{}\n{}", options_.prefix, call));
}

/// Unless another group of this rank waits since. Nothing waits here any more, so that a store which has ended is no
/// reason to give up.
void Watchdog::take_back_whereabouts() {
    if (std::exchange(waits_in_, "").empty()) return;
    const KeyStore::Pair nowhere{options_.whereabouts(options_.rank), ""};
    const auto told = options_.store->find(nowhere.first);
    if (told && *told && (*told)->starts_with(options_.prefix + "\n"))
        static_cast<void>(options_.store->set({&nowhere, 1}));
}

/// What a rank that has not come waits in instead, with others: " (in a barrier of another communicator)", or "".
std::string Watchdog::elsewhere(std::uint32_t rank) {
    if (!options_.whereabouts) return {};
    const auto told = options_.store->find(options_.whereabouts(rank));
    if (!told || !*told) return {};
    const std::size_t end = (*told)->find('\n');
    if (end == std::string::npos || (*told)->substr(0, end) == options_.prefix) return {};
    return fmt::format(" (waits in {} of another communicator)", (*told)->substr(end + 1));
}

/// How many messages to and from whom have begun, as lines behind an empty one; "": none.
std::string Watchdog::message_counts() const {
    std::string counts;
    for (std::uint32_t peer = 0; peer < options_.size; ++peer) {
        const std::uint64_t sent = messages_[peer].sent.load(std::memory_order_relaxed);
        const std::uint64_t received = messages_[peer].received.load(std::memory_order_relaxed);
        if (sent != 0) counts += fmt::format("\nto {} {}", peer, sent);
        if (received != 0) counts += fmt::format("\nfrom {} {}", peer, received);
    }
    return counts;
}

/// Says which messages have begun, before anybody learns of the operation that comes after them.
bool Watchdog::tell_messages() {
    const std::string counts = message_counts();
    return counts.empty() || tell(key("messages", options_.rank), counts);
}

/// Checks that the sender and the receiver of a message give the same size, and that neither waits for the other
/// in an operation of all ranks.
/// \return false: they do not, or the store does not answer
bool Watchdog::compare_messages(const Call& call, std::uint64_t number, milliseconds since) {
    const std::size_t element = bytes_of(call.type);
    std::string ours;
    for (const auto& [way, message] :
         {std::pair("to", call.sends), std::pair("from", call.receives)})
        if (message.peer != Message::kNone)
            ours += fmt::format(
                "{}{}\n", message_of(way, static_cast<std::uint32_t>(message.peer), message.number),
                message.count * element);
    if (!tell_messages() || !tell(message_key(), ours)) return false;
    if (differs(call.sends, "from", element) || differs(call.receives, "to", element)) return false;
    if (is_crossed(call, call.receives, number)) return false;
    return since < kSentWithin || !is_crossed(call, call.sends, number);
}

/// Whether the peer has begun this message, too, which only goes slowly, or which the peer has already left.
/// \param their_way  what the peer calls it: "to" or "from" us
bool Watchdog::is_there(const Message& message, std::string_view their_way) {
    const auto counts =
        options_.store->find(key("messages", static_cast<std::uint32_t>(message.peer)));
    return counts && *counts && number_of(**counts, their_way, options_.rank) > message.number;
}

/// Whether the peer of this message is in a later operation of all ranks: that waits for this rank, which waits for
/// the message.
/// \param number  of this rank's last operation of all ranks
bool Watchdog::is_crossed(const Call& call, const Message& message, std::uint64_t number) {
    if (message.peer == Message::kNone) return false;
    const auto peer = static_cast<std::uint32_t>(message.peer);
    const auto at = options_.store->find(key("at", peer));
    if (!at || !*at) return false;
    const auto [newest, theirs] = number_and_text(**at);
    // Where this rank is missing none ends, so that what the peer has said of itself still holds.
    if (newest <= number || !needs_all(theirs)) return false;
    const auto counts = options_.store->find(key("messages", peer));
    if (!counts) return false;
    const bool sends = &message == &call.sends;
    const std::string_view lines = *counts ? std::string_view(**counts) : std::string_view();
    if (number_of(lines, sends ? "from" : "to", options_.rank) > message.number) return false;
    give_up_on(peer, describe(call), theirs);
    return true;
}

/// \param their_way  what the peer calls it: "to" or "from" us
bool Watchdog::differs(const Message& message, std::string_view their_way, std::size_t element) {
    if (message.peer == Message::kNone) return false;
    const auto peer = static_cast<std::uint32_t>(message.peer);
    const auto theirs = options_.store->find(key("message", peer));
    if (!theirs || !*theirs) return false;
    const std::string same = message_of(their_way, options_.rank, message.number);
    const std::size_t at = (**theirs).find(same);
    if (at == std::string::npos) return false;
    std::uint64_t sent = message.count * element;
    std::uint64_t received =
        number_and_text(std::string_view(**theirs).substr(at + same.size())).first;
    if (sent == received) return false;
    std::uint32_t sender = options_.rank, receiver = peer;
    if (their_way == "to") {
        std::swap(sent, received);
        std::swap(sender, receiver);
    }
    give_up(Errc::invalid_input,
            fmt::format("ranks disagree: {} sends {} B, {} receives {} B", options_.name(sender),
                        sent, options_.name(receiver), received));
    return true;
}

/// Compares the recent calls that this and another rank both still list; a rank that may leave an
/// operation before others have come is already further on.
bool Watchdog::disagrees(std::uint32_t other, std::string_view ours) {
    const auto at = options_.store->find(key("at", other));
    if (!at || !*at) return false;
    const auto own = calls_of(ours);
    for (const auto& [number, theirs] : calls_of(**at)) {
        const auto same = own.find(number);
        if (same == own.end() || same->second == theirs) continue;
        give_up_on(other, same->second, theirs);
        return true;
    }
    return false;
}

void Watchdog::give_up_on(std::uint32_t other, std::string_view ours, std::string_view theirs) {
    const auto say = [this](std::uint32_t rank, std::string_view call) {
        return fmt::format("{} calls {}", options_.name(rank), call);
    };
    std::string lower = say(options_.rank, ours);
    std::string higher = say(other, theirs);
    if (other < options_.rank) std::swap(lower, higher);
    disagreed(fmt::format("ranks disagree: {}, {}", lower, higher));
}

/// With many ranks, those of this rank's block are asked; if nobody is missing there, those of the next block, behind the
/// last the first one. So each block is looked at by its own ranks and, if none of them is there, by others.
/// \return nothing: the store does not answer
std::optional<Watchdog::Presence> Watchdog::presence(std::uint64_t number) {
    const std::uint32_t own = options_.rank / kAskedMax * kAskedMax;
    auto known = presence_in_block(own, number);
    if (!known) return std::nullopt;
    known->speaks = known->waiting.front() == options_.rank;
    if (!known->missing.empty() || options_.size <= kAskedMax) return known;
    const std::uint32_t next = own + kAskedMax < options_.size ? own + kAskedMax : 0;
    auto others = presence_in_block(next, number);
    if (!others) return std::nullopt;
    known->speaks = known->speaks && others->waiting.empty();  // who waits there tells of it
    known->missing = std::move(others->missing);
    known->among = std::move(others->among);
    return known;
}

/// \param first  the first rank of the block
/// \return nothing: the store does not answer
std::optional<Watchdog::Presence> Watchdog::presence_in_block(std::uint32_t first,
                                                              std::uint64_t number) {
    Presence known;
    std::vector<std::uint32_t> asked;
    for (std::uint32_t rank = first; rank < std::min(options_.size, first + kAskedMax); ++rank) {
        asked.push_back(options_.ranks[rank]);
        if (rank == options_.rank) {
            known.waiting.push_back(rank);
            continue;
        }
        const auto at = options_.store->find(key("at", rank));
        if (!at) return std::nullopt;
        const std::uint64_t newest = *at ? number_and_text(**at).first : 0;
        if (newest < number)
            known.missing.push_back(rank);
        else if (newest == number && !(*at)->ends_with(kIdle))
            known.waiting.push_back(rank);
    }
    if (options_.size > kAskedMax) known.among = name_ranks(asked);
    return known;
}

std::string Watchdog::name_all(std::span<const std::uint32_t> ranks) {
    return name_some(ranks,
                     [this](std::uint32_t rank) { return options_.name(rank) + elsewhere(rank); });
}

/// Text that names the ranks known not to have come to an operation; may be empty.
std::string Watchdog::absent(std::uint64_t number) {
    const auto known = presence(number);
    if (!known) return {};
    const std::string& among = known->among;
    if (known->missing.empty())
        return among.empty() ? "" : "; those that were asked are there, not all were";
    return fmt::format("; not there{}{}: {}", among.empty() ? "" : ", among ", among,
                       name_all(known->missing));
}

void Watchdog::give_up(Errc code, std::string why) {
    {
        const std::lock_guard lock(mutex_);
        if (verdict_) return;
        verdict_ = Error{code, why};
    }
    if (code == Errc::invalid_input)
        blame_.say_how_ranks_disagree(why);
    else
        blame_.say_why(why);
    options_.abort();
}

void Watchdog::membership_ended() {
    give_up(Errc::closed, "a rank of this generation is lost");
}

void Watchdog::disagreed(const std::string& how) {
    give_up(Errc::invalid_input, how);
}

void Watchdog::abort(const std::string& why) {
    give_up(Errc::cancelled, why);
}

Error Watchdog::explain(const Error& error, std::optional<std::uint32_t> lost) {
    {
        const std::lock_guard lock(mutex_);
        if (verdict_) return *verdict_;
    }
    if (error.code != Errc::closed) {
        blame_.say_why(error.message);
        return error;
    }
    blame_.put_on(lost);
    return lost ? blame_.follow(*lost, error.message) : blame_.survey(error.message);
}

std::vector<std::string> Watchdog::keys() const {
    return {at_key(), message_key(), key("messages", options_.rank)};
}

std::string Watchdog::key(std::string_view kind, std::uint32_t rank) const {
    return fmt::format("{}/{}/{}", options_.prefix, kind, rank);
}

}  // namespace dtrun::collectives
