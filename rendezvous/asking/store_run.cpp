#include "rendezvous/asking/store_run.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/loop/waiting_news.h"
#include "base/standard_streams.h"
#include "base/strings.h"
#include "rendezvous/asking/locked_command.h"
#include "rendezvous/wire/msgpack.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>

namespace dtrun::asking {
namespace {

using Shows = StoreVerb::Shows;

/// How long an answer may take after the time that the user has given, or else altogether, where nothing
/// is waited for.
constexpr std::chrono::seconds kGrace{5};
constexpr std::chrono::seconds kReplyLimit{60};
constexpr std::uint64_t kListPage = 10'000;
constexpr std::uint64_t kErased = 1;  // kind of a change

int put_value(std::string_view value) {
    const bool is_open_line = ::isatty(STDOUT_FILENO) == 1 && !value.ends_with('\n');
    return put(is_open_line ? std::string(value) + "\n" : std::string(value));
}

/// A value from standard input.
Result<std::string> read_value() {
    std::string text;
    std::string chunk(64u << 10, '\0');
    for (;;) {
        const ssize_t n = ::read(STDIN_FILENO, chunk.data(), chunk.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(Errc::invalid_input, "standard input: {}", strerror(errno));
        if (n == 0) return text;
        text.append(chunk, 0, static_cast<std::size_t>(n));
        if (text.size() > kValueBytesMax)
            return fail(Errc::invalid_input,
                        "standard input has more than {} bytes, the limit of a value",
                        kValueBytesMax);
    }
}

/// What a reply that is not ok means to the user.
int complain(const StoreClient::Reply& reply, const std::string& key) {
    switch (reply.status) {
        case Status::not_found:
            log::error("{}: no such key", key);
            return kStoreNotThere;
        case Status::timed_out:
            log::error("{}: did not come in time (--timeout)", key);
            return kStoreNotThere;
        case Status::stale:
            log::error("{}: a new generation began, with an empty store", key);
            return kStoreNotThere;
        case Status::wrong_type:
            log::error("{}: holds something else: a queue, or no number", key);
            return kStoreOtherType;
        default: {
            PackReader in(reply.results);
            const bool tells_of_room = in.array() > 1;
            const std::string why(in.str());
            log::error("{}: {}", key, in.ok() ? why : "refused");
            return tells_of_room && in.boolean() ? kStoreFull : kStoreRefused;
        }
    }
}

/// Who holds a lock of ours, in its value.
std::string own_name() {
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    return fmt::format("{}:{}", host, ::getpid());
}

/// Why a command could not be executed.
int exit_code_of_command(const Error& error) {
    return error.code == Errc::not_found ? kStoreProgramMissing : kStoreNotExecutable;
}

class StoreRun {
public:
    /// \param job    the daemon's; empty: our rank's own, or all
    /// \param value  the last operand, or what stands on standard input
    StoreRun(const StoreOrder& order, const StoreParts& parts, StoreClient& client, std::string job,
             std::string value)
        : order_(order),
          parts_(parts),
          client_(client),
          job_(std::move(job)),
          value_(std::move(value)) {}

    asio::awaitable<Result<int>> run() {
        switch (order_.verb.op) {
            case Op::watch:
                return watch();
            case Op::watch_prefix:
                return watch_prefix();
            case Op::list:
                return list();
            case Op::lock:
                return lock();
            default:
                return once();
        }
    }

private:
    const std::string& key() const { return order_.operands.front(); }

    /// What is asked for, in messages.
    std::string subject() const {
        if (order_.verb.op == Op::wait) return join_names(order_.operands);
        if (!order_.operands.empty()) return key();
        return job_.empty() ? "the store" : fmt::format("job \"{}\"", escaped(job_));
    }

    /// What the operands ask for. Errc: invalid_input
    Result<StoreRequest> request() const {
        const std::vector<std::string>& operands = order_.operands;
        StoreRequest request{.op = order_.verb.op};
        const std::size_t keys = request.op == Op::wait ? operands.size() : 1;
        for (const std::string& each : std::span(operands).first(std::min(keys, operands.size())))
            request.keys.push_back(each);
        if (order_.verb.takes_value()) request.values = {value_};
        if (order_.verb.min == 3) request.expected = operands[1];
        if (order_.ttl) request.ttl_ms = static_cast<std::uint64_t>(order_.ttl->count());
        if (request.op != Op::add) return request;
        const auto delta = to_int(operands[1], std::numeric_limits<long long>::min(),
                                  std::numeric_limits<long long>::max());
        if (!delta) return fail(Errc::invalid_input, "'{}' is no number", operands[1]);
        request.delta = *delta;
        return request;
    }

    /// Waits as long as the user wants. \param otherwise  in ms, if they have not said
    asio::awaitable<Result<StoreClient::Reply>> ask(StoreRequest request, std::uint64_t otherwise) {
        const auto& timeout = order_.timeout;
        request.timeout_ms = timeout ? static_cast<std::uint64_t>(timeout->count()) : otherwise;
        Deadline limit = after(timeout ? *timeout + kGrace : kReplyLimit);
        if (request.timeout_ms == kForeverMs) limit = Deadline::max();
        TaskGroup teller(client_.executor());
        const bool is_stream = request.op == Op::watch || request.op == Op::watch_prefix;
        if (request.timeout_ms > 0 && !is_stream)
            teller.spawn(tell_while_waiting(wait_teller(request.op)));
        auto reply = co_await client_.ask(std::move(request), limit);
        teller.stop();
        co_await teller.join();
        co_return reply;
    }

    /// Tells what is waited for, and until when.
    std::function<void()> wait_teller(Op op) const {
        const std::string what = (op == Op::lock ? "the lock " : "") + subject();
        std::optional<Deadline> end;
        if (order_.timeout) end = after(*order_.timeout);
        return [what, end] {
            std::optional<std::chrono::milliseconds> left;
            if (end)
                left = std::chrono::duration_cast<std::chrono::milliseconds>(*end - Clock::now());
            log::warn("waiting for {}{}", what, until_text(left, "--timeout"));
        };
    }

    asio::awaitable<Result<int>> once() {
        auto wanted = request();
        if (!wanted) co_return std::unexpected(wanted.error());
        const std::uint64_t otherwise = wanted->op == Op::wait ? kForeverMs : 0;
        const auto reply = co_await ask(std::move(*wanted), otherwise);
        if (!reply) co_return std::unexpected(reply.error());
        if (reply->status != Status::ok) co_return complain(*reply, subject());
        PackReader in(reply->results);
        in.array();
        co_return show(in);
    }

    Result<int> show(PackReader& in) const {
        switch (order_.verb.shows) {
            case Shows::value:
                return put_value(in.bin());
            case Shows::number:
                return put(fmt::format("{}\n", in.integer()));
            case Shows::was_set: {
                if (in.boolean()) return 0;
                const int failed = in.nil() ? 0 : put_value(in.bin());
                return failed != 0 ? failed : kStoreNotThere;
            }
            case Shows::existed: {
                if (order_.verb.op == Op::erase)
                    return in.boolean() ? 0 : complain({Status::not_found, {}}, key());
                const auto count = in.integer();
                const int failed = put(fmt::format("{}\n", count));
                return failed == 0 && count == 0 ? kStoreNotThere : failed;
            }
            case Shows::dropped:
                return in.boolean() ? 0 : no_job(job_);
            case Shows::status:
                return parts_.show_status(in.str());
            case Shows::nothing:
            case Shows::changes:
            case Shows::keys:
                break;
        }
        return 0;
    }

    asio::awaitable<Result<int>> watch() {
        StoreRequest request{.op = Op::watch, .keys = {key()}};
        for (;;) {
            const auto reply = co_await ask(request, kForeverMs);
            if (!reply) co_return std::unexpected(reply.error());
            if (reply->status == Status::stale) {
                if (request.number != 0)
                    if (const int failed = show_removed(
                            "is not in the store of the next generation, or job of this name"))
                        co_return failed;
                request.number = 0;
                continue;
            }
            if (reply->status != Status::ok) co_return complain(*reply, key());
            PackReader in(reply->results);
            in.array();
            request.number = in.uint();
            int failed = 0;
            if (!in.nil())
                failed = show(in.bin());
            else if (request.number == 0)
                failed = show_removed("removed");
            else
                failed = show_queue();
            if (failed != 0) co_return failed;
        }
    }

    int show(std::string_view value) const {
        return put(order_.nul ? fmt::format("={}{}", value, '\0') : fmt::format("{}\n", value));
    }

    int show_removed(std::string_view how) const {
        if (order_.nul) return put(std::string_view("-\0", 2));
        log::warn("{}: {}", key(), how);
        return 0;
    }

    int show_queue() const {
        if (order_.nul) return put(std::string_view("*\0", 2));
        log::warn("{}: is a queue now", key());
        return 0;
    }

    /// \param state  "=VALUE", or "-": it is not there, or "*": it is a queue
    int show_change(std::string_view changed, std::string_view state) const {
        return put(fmt::format("{}{}{}{}", changed, order_.nul ? '\0' : '\t', state,
                               order_.nul ? '\0' : '\n'));
    }

    asio::awaitable<Result<int>> watch_prefix() {
        StoreRequest request{.op = Op::watch_prefix, .keys = {key()}};
        // Revisions of keys that were shown and are there.
        std::map<std::string, std::uint64_t> known;
        for (;;) {
            const auto reply = co_await ask(request, kForeverMs);
            if (!reply) co_return std::unexpected(reply.error());
            if (reply->status == Status::stale) continue;
            if (reply->status != Status::ok) co_return complain(*reply, key());
            PackReader in(reply->results);
            in.array();
            request.number = in.uint();
            const bool is_complete = in.boolean();
            const std::uint32_t changes = in.array();
            if (changes == 0 && !is_complete) co_return complain({Status::timed_out, {}}, key());
            if (const int failed = show_changes(in, changes, is_complete, known)) co_return failed;
        }
    }

    /// \param is_complete  these are all keys that are there
    int show_changes(PackReader& in, std::uint32_t changes, bool is_complete,
                     std::map<std::string, std::uint64_t>& known) const {
        std::map<std::string, std::uint64_t> before;
        if (is_complete) before.swap(known);
        int failed = 0;
        for (; in.ok() && failed == 0 && changes > 0; --changes) {
            in.array();
            const std::uint64_t revision = in.uint();
            const std::string changed(in.bin());
            const bool has_value = !in.nil();
            const std::string value = has_value ? fmt::format("={}", in.bin()) : "";
            const bool is_erased = in.uint() == kErased;
            const auto was = before.extract(changed);
            const bool is_shown = !was.empty() && was.mapped() == revision;
            if (is_erased)
                known.erase(changed);
            else
                known[changed] = revision;
            if (!is_shown) failed = show_change(changed, has_value ? value : is_erased ? "-" : "*");
        }
        for (const auto& [gone, revision] : before)
            if (failed == 0) failed = show_change(gone, "-");
        return failed;
    }

    /// Takes a lock, and holds it while a command runs.
    asio::awaitable<Result<int>> lock() {
        const std::string holder = order_.holder.value_or(own_name());
        StoreRequest request{.op = Op::lock, .keys = {key()}, .values = {holder}};
        request.owner = client_.own();
        const auto taken = co_await ask(request, kForeverMs);
        if (!taken) co_return std::unexpected(taken.error());
        if (taken->status == Status::timed_out) co_return co_await tell_of_holder();
        if (taken->status != Status::ok) co_return complain(*taken, key());
        PackReader in(taken->results);
        in.array();
        request.number = in.uint();
        LockedCommand command(client_, key(), request.number,
                              std::span(order_.operands).subspan(1));
        const auto ended = co_await command.run();
        if (!ended && ended.error().code == Errc::closed) co_return kStoreLockLost;
        if (!ended) log::error("{}", ended.error().message);
        request.op = Op::unlock;
        const Result<void> held = co_await release(request);
        if (!held) log::error("{}: {}", key(), held.error().message);
        if (!held) co_return kStoreLockLost;
        co_return ended ? *ended : exit_code_of_command(ended.error());
    }

    /// Errc: closed: it may not have been ours to the end
    asio::awaitable<Result<void>> release(StoreRequest request) {
        const auto reply = co_await client_.ask(request, after(kReplyLimit));
        if (!reply)
            co_return fail(Errc::closed, "whether the lock was held to the end is not known: {}",
                           reply.error().message);
        PackReader in(reply->results);
        in.array();
        if (reply->status == Status::ok && in.boolean()) co_return Result<void>{};
        co_return fail(Errc::closed, "the lock was lost before the command had ended");
    }

    asio::awaitable<Result<int>> tell_of_holder() {
        const StoreRequest request{.op = Op::get, .keys = {key()}};
        const auto reply = co_await client_.ask(request, after(kGrace));
        std::string_view holder;
        if (reply && reply->status == Status::ok) {
            PackReader in(reply->results);
            in.array();
            holder = in.bin();
        }
        log::error("{}: was not free in time (--timeout){}{}", key(),
                   holder.empty() ? "" : "; it is held by ", escaped(holder));
        co_return kStoreLockBusy;
    }

    asio::awaitable<Result<int>> list() {
        const std::string prefix = order_.operands.empty() ? "" : key();
        std::string after;
        for (bool more = true; more;) {
            const StoreRequest request{
                .op = Op::list, .keys = {prefix}, .number = kListPage, .after = after};
            const auto reply = co_await ask(request, 0);
            if (!reply) co_return std::unexpected(reply.error());
            if (reply->status != Status::ok) co_return complain(*reply, prefix);
            PackReader in(reply->results);
            in.array();
            std::string page;
            for (std::uint32_t left = in.array(); in.ok() && left > 0; --left) {
                after = in.bin();
                page += after;
                page += order_.nul ? '\0' : '\n';
            }
            more = in.boolean();
            if (const int failed = put(page)) co_return failed;
        }
        co_return 0;
    }

    const StoreOrder& order_;
    const StoreParts& parts_;
    StoreClient& client_;
    std::string job_;
    std::string value_;
};

asio::awaitable<Result<int>> run(const StoreOrder& order, const StoreParts& parts) {
    // Input is read before we connect: from then on a daemon expects heartbeats.
    Result<std::string> value;
    if (order.verb.takes_value()) value = order.operands.back();
    if (order.reads_input()) value = read_value();
    if (!value) co_return std::unexpected(value.error());
    if (value->size() > kValueBytesMax)
        co_return fail(Errc::invalid_input, "a value of {} bytes, more than {}", value->size(),
                       kValueBytesMax);
    auto server = parts.find_server();
    // Nobody has refused us yet: the secret's file is not as it should be.
    if (!server && server.error().code == Errc::denied)
        co_return fail(Errc::invalid_input, "{}", server.error().message);
    if (!server) co_return std::unexpected(server.error());
    if (order.timeout)
        server->connect_limit = std::min(server->connect_limit, *order.timeout + kGrace);
    const std::string job = server->daemon.job;
    const auto executor = co_await asio::this_coro::executor;
    StoreClient client(executor, std::move(*server));
    const auto connected = co_await client.connect();
    if (!connected) co_return std::unexpected(connected.error());
    StoreRun runner(order, parts, client, job, std::move(*value));
    auto done = co_await runner.run();
    co_await client.close();
    co_return done;
}

int exit_code_of(const Error& error) {
    switch (error.code) {
        case Errc::invalid_input:
        case Errc::not_found:
            return kStoreUsage;
        case Errc::denied:
            return kStoreDenied;
        case Errc::cancelled:
            return kStoreRefused;
        default:
            return kStoreUnreachable;
    }
}

}  // namespace

/// Writes to standard output. \return the exit code: 0, or that of what it has not taken
int put(std::string_view text) {
    const auto written = write_all(STDOUT_FILENO, text);
    if (written) return 0;
    if (written.error().code == Errc::closed) return kStoreReaderGone;
    log::error("standard output: {}", written.error().message);
    return kStoreInternal;
}

int no_job(std::string_view job) {
    log::error("no job \"{}\"", escaped(job));
    return kStoreNotThere;
}

int carry_out(const StoreOrder& order, const StoreParts& parts) {
    ::signal(SIGPIPE, SIG_IGN);
    if (order.reads_input() && was_closed(STDIN_FILENO)) {
        log::error("standard input is closed, and the value stands there");
        return kStoreUsage;
    }
    // What is taken out of the store would be nowhere then.
    if (order.writes_output() && was_closed(STDOUT_FILENO)) {
        log::error("standard output: it is closed");
        return kStoreInternal;
    }
    asio::io_context io(1);
    int status = kStoreInternal;
    asio::co_spawn(io, run(order, parts), [&](std::exception_ptr error, Result<int> done) {
        if (error) std::rethrow_exception(error);
        if (!done) log::error("{}", done.error().message);
        status = done ? *done : exit_code_of(done.error());
    });
    io.run();
    return status;
}

}  // namespace dtrun::asking
