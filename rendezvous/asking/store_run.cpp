#include "rendezvous/asking/store_run.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "rendezvous/wire/msgpack.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
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
        if (order_.verb.shows == Shows::changes) return watch();
        if (order_.verb.shows == Shows::keys) return list();
        return once();
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
        return client_.ask(std::move(request), limit);
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
            case Shows::existed:
                return in.boolean() ? 0 : complain({Status::not_found, {}}, key());
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
                log::warn("{}: is a queue now", key());
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
