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
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>

namespace dtrun::asking {
namespace {

using Verb = StoreOrder::Verb;

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
            in.array();
            const std::string why(in.str());
            log::error("{}: {}", key, in.ok() ? why : "refused");
            return kStoreRefused;
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
        switch (order_.verb) {
            case Verb::get:
                return once({.op = Op::get, .keys = {key()}}, 0, show_value);
            case Verb::set:
                return once(with_value(Op::set), show_nothing);
            case Verb::create:
                return compare_set(std::nullopt);
            case Verb::compare_set:
                return compare_set(order_.operands[1]);
            case Verb::append:
                return once(with_value(Op::append), show_number);
            case Verb::add:
                return add();
            case Verb::push:
                return once(with_value(Op::push), show_number);
            case Verb::pop:
                return once({.op = Op::pop, .keys = {key()}}, 0, show_value);
            case Verb::length:
                return once({.op = Op::length, .keys = {key()}}, show_number);
            case Verb::count:
                return once({.op = Op::count}, show_number);
            case Verb::wait:
                return wait();
            case Verb::watch:
                return watch();
            case Verb::list:
                return list();
            case Verb::erase:
                return once({.op = Op::erase, .keys = {key()}},
                            std::bind_front(&StoreRun::show_erased, this));
            case Verb::drop:
                return once({.op = Op::drop}, std::bind_front(&StoreRun::show_dropped, this));
            case Verb::status:
                break;
        }
        return once({.op = Op::status}, std::bind_front(&StoreRun::show_status, this));
    }

private:
    const std::string& key() const { return order_.operands.front(); }

    /// Asks what waits for nothing.
    asio::awaitable<Result<StoreClient::Reply>> ask(StoreRequest request) {
        const auto limit = order_.timeout ? *order_.timeout + kGrace : kReplyLimit;
        co_return co_await client_.ask(std::move(request), after(limit));
    }
    /// Asks what waits as long as the user wants. \param otherwise  if they have not said
    asio::awaitable<Result<StoreClient::Reply>> ask(StoreRequest request, std::uint64_t otherwise) {
        request.timeout_ms =
            order_.timeout ? static_cast<std::uint64_t>(order_.timeout->count()) : otherwise;
        if (request.timeout_ms != kForeverMs) co_return co_await ask(std::move(request));
        co_return co_await client_.ask(std::move(request), Deadline::max());
    }

    using Answer = asio::awaitable<Result<int>>;
    /// Shows an answer that is ok.
    using Show = std::function<Result<int>(PackReader& in)>;

    static Result<int> show_nothing(PackReader&) { return 0; }
    static Result<int> show_value(PackReader& in) { return put_value(in.bin()); }
    static Result<int> show_number(PackReader& in) {
        return put(fmt::format("{}\n", in.integer()));
    }

    /// What is asked for, in messages.
    std::string subject() const {
        if (!order_.operands.empty())
            return order_.verb == Verb::wait ? join_names(order_.operands) : key();
        return job_.empty() ? "the store" : fmt::format("job \"{}\"", escaped(job_));
    }

    Answer once(StoreRequest request, Show show) {
        const auto reply = co_await ask(std::move(request));
        co_return shown(reply, show);
    }
    /// The same of what waits. \param otherwise  for how long without --timeout, in ms
    Answer once(StoreRequest request, std::uint64_t otherwise, Show show) {
        const auto reply = co_await ask(std::move(request), otherwise);
        co_return shown(reply, show);
    }
    Result<int> shown(const Result<StoreClient::Reply>& reply, const Show& show) const {
        if (!reply) return std::unexpected(reply.error());
        if (reply->status != Status::ok) return complain(*reply, subject());
        PackReader in(reply->results);
        in.array();
        return show(in);
    }

    StoreRequest with_value(Op op) const { return {.op = op, .keys = {key()}, .values = {value_}}; }

    Answer add() {
        const auto delta = to_int(order_.operands[1], std::numeric_limits<long long>::min(),
                                  std::numeric_limits<long long>::max());
        if (!delta) co_return fail(Errc::invalid_input, "'{}' is no number", order_.operands[1]);
        const StoreRequest request{.op = Op::add, .keys = {key()}, .delta = *delta};
        co_return co_await once(request, show_number);
    }

    /// \param expected  nothing: that the key is missing
    Answer compare_set(std::optional<std::string_view> expected) {
        StoreRequest request = with_value(Op::compare_set);
        request.expected = expected;
        return once(std::move(request), [](PackReader& in) -> Result<int> {
            if (in.boolean()) return 0;
            const int failed = in.nil() ? 0 : put_value(in.bin());
            return failed != 0 ? failed : kStoreNotThere;
        });
    }

    Answer wait() {
        StoreRequest request{.op = Op::wait};
        request.keys.assign(order_.operands.begin(), order_.operands.end());
        return once(std::move(request), kForeverMs, show_nothing);
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
        if (order_.nul) return put(std::string_view("-", 2));
        log::warn("{}: {}", key(), how);
        return 0;
    }

    asio::awaitable<Result<int>> list() {
        const std::string prefix = order_.operands.empty() ? "" : key();
        std::string after;
        for (bool more = true; more;) {
            const StoreRequest request{
                .op = Op::list, .keys = {prefix}, .number = kListPage, .after = after};
            const auto reply = co_await ask(request);
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

    Result<int> show_erased(PackReader& in) const {
        return in.boolean() ? 0 : complain({Status::not_found, {}}, key());
    }
    Result<int> show_dropped(PackReader& in) const { return in.boolean() ? 0 : no_job(job_); }
    Result<int> show_status(PackReader& in) const { return parts_.show_status(in.str()); }

    const StoreOrder& order_;
    const StoreParts& parts_;
    StoreClient& client_;
    std::string job_;
    std::string value_;
};

asio::awaitable<Result<int>> run(const StoreOrder& order, const StoreParts& parts) {
    // Input is read before we connect: from then on a daemon expects heartbeats.
    Result<std::string> value;
    if (order.takes_value) value = order.operands.back();
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
