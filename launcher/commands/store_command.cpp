#include "launcher/commands/store_command.h"

#include "base/fd.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/loop/task_group.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "hostfiles/scan.h"
#include "launcher/cli/command.h"
#include "launcher/plan/daemon_target.h"
#include "launcher/plan/exit_code.h"
#include "launcher/watch/daemon_page.h"
#include "launcher/watch/serialize.h"
#include "rendezvous/links/client.h"
#include "rendezvous/links/pulse.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/heartbeat.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/store_request.h"

#include <unistd.h>
#include <algorithm>
#include <boost/json/array.hpp>
#include <csignal>
#include <limits>

namespace dtrun::commands {
namespace {

namespace json = boost::json;

using Verb = StoreCommand::Verb;

constexpr int kExitNotThere = 1;
constexpr std::chrono::seconds kConnectLimit{10};
constexpr std::uint64_t kListPage = 10'000;

/// A client of a job's store, over one connection.
class StoreClient {
public:
    StoreClient(asio::any_io_executor executor, std::unique_ptr<Link> link)
        : link_(std::move(link)), tasks_(executor), pulse_(executor, kHeartbeatTimeout) {
        tasks_.spawn(link_->run_writer());
    }

    template <class Message>
    void say(const Message& message) {
        link_->send(encode(message));
    }
    /// Sends heartbeats, which a daemon expects.
    void keep_alive() {
        tasks_.spawn(pulse_.run([this] { link_->send(encode(Heartbeat{})); }));
    }

    struct Reply {
        Status status{};
        Bytes results;
    };
    asio::awaitable<Result<Reply>> ask(StoreRequest request) {
        link_->send(encode_request({client_, ++id_}, request, 0));
        for (;;) {
            const auto frame = link_->next();
            if (!frame) co_return std::unexpected(frame.error());
            if (!*frame) {
                const auto received = co_await link_->receive();
                if (!received) co_return std::unexpected(received.error());
            } else if ((*frame)->type == FrameType::refuse) {
                const auto refuse = decode<Refuse>((*frame)->payload);
                co_return fail(Errc::denied, "{}", refuse ? refuse->reason : "refused");
            } else if ((*frame)->type == FrameType::reply) {
                const auto reply = decode_reply((*frame)->payload);
                if (!reply) co_return std::unexpected(reply.error());
                if (reply->header.id == id_)
                    co_return Reply{reply->header.status, Bytes(reply->results)};
            }
        }
    }

    asio::awaitable<void> close() {
        say(Gone{client_});  // answers need not be kept for us
        co_await link_->flush();
        link_->shut_down_sending();
        link_->close();
        tasks_.stop();
        co_await tasks_.join();
    }

private:
    std::unique_ptr<Link> link_;
    TaskGroup tasks_;
    Pulse pulse_;
    std::uint64_t client_ = random_id();
    std::uint64_t id_ = 0;
};

/// The agent of this rank, if we are inside one and no daemon was named.
asio::awaitable<Result<std::unique_ptr<StoreClient>>> connect_to_agent(std::string name) {
    const auto executor = co_await asio::this_coro::executor;
    if (name.starts_with('@')) name.front() = '\0';
    Unix::socket socket(executor);
    const auto [error] = co_await socket.async_connect(Unix::endpoint(name), use_tuple);
    if (error) co_return fail(Errc::unreachable, "DTRUN_SOCKET: {}", error.message());
    if (const auto other = foreign_user(socket.native_handle()))
        co_return fail(Errc::denied, "DTRUN_SOCKET belongs to user {}, not to us", *other);
    auto client =
        std::make_unique<StoreClient>(executor, std::make_unique<Link>(std::move(socket)));
    Hello hello;
    hello.pid = ::getpid();
    client->say(hello);
    co_return client;
}

asio::awaitable<Result<std::unique_ptr<StoreClient>>> connect_to_daemon(plan::DaemonTarget target) {
    const auto executor = co_await asio::this_coro::executor;
    auto connection = co_await connect_to_server(target.addresses, target.port, target.credentials,
                                                 after(kConnectLimit));
    if (!connection) {
        Error why = connection.error();
        if (why.code == Errc::unreachable) why.message += "; is `dtrun serve` running there?";
        co_return fail(why, "dtrun serve at {}", target.text);
    }
    auto client =
        std::make_unique<StoreClient>(executor, std::make_unique<Link>(std::move(*connection)));
    Enter enter;
    enter.member = MemberId{1};
    enter.job_name = target.job;
    client->say(enter);
    client->keep_alive();
    co_return client;
}

bool put(std::string_view text) {
    return write_all(STDOUT_FILENO, text).has_value();
}

void put_value(std::string_view value) {
    put(value);
    if (::isatty(STDOUT_FILENO) == 1 && !value.ends_with('\n')) put("\n");
}

std::string read_all_input() {
    std::string text;
    char buffer[65'536];
    for (ssize_t n = 0; (n = ::read(STDIN_FILENO, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(n));
    return text;
}

/// What a reply that is not ok means to the user.
int complain(const StoreClient::Reply& reply, const std::string& key) {
    switch (reply.status) {
        case Status::not_found:
            log::error("{}: no such key", key);
            return kExitNotThere;
        case Status::timed_out:
            log::error("{}: did not come in time (--timeout)", key);
            return kExitNotThere;
        case Status::stale:
            log::error("{}: a new generation began, with an empty store", key);
            return kExitNotThere;
        case Status::wrong_type:
            log::error("{}: holds something else: a queue, or no number", key);
            return kExitNotThere;
        default: {
            PackReader in(reply.results);
            in.array();
            log::error("{}: {}", key, in.str());
            return kExitNotThere;
        }
    }
}

class StoreRun {
public:
    /// \param job    the daemon's job; empty: our rank's own, or all
    /// \param input  what `set KEY -` sets
    StoreRun(const StoreCommand& command, StoreClient& client, std::string job, std::string input)
        : command_(command), client_(client), job_(std::move(job)), input_(std::move(input)) {}

    asio::awaitable<Result<int>> run() {
        switch (command_.verb) {
            case Verb::get:
                return get();
            case Verb::set:
                return set();
            case Verb::add:
                return add();
            case Verb::wait:
                return wait();
            case Verb::watch:
                return watch();
            case Verb::list:
                return list();
            case Verb::erase:
                return erase();
            case Verb::status:
                return status();
        }
        return status();
    }

private:
    const std::string& key() const { return command_.operands.front(); }
    std::uint64_t timeout_ms(std::uint64_t otherwise) const {
        return command_.timeout ? static_cast<std::uint64_t>(command_.timeout->count()) : otherwise;
    }

    asio::awaitable<Result<int>> get() {
        const StoreRequest request{.op = Op::get, .keys = {key()}, .timeout_ms = timeout_ms(0)};
        const auto reply = co_await client_.ask(request);
        if (!reply) co_return std::unexpected(reply.error());
        if (reply->status != Status::ok) co_return complain(*reply, key());
        PackReader in(reply->results);
        in.array();
        put_value(in.bin());
        co_return 0;
    }

    asio::awaitable<Result<int>> set() {
        const std::string& value = command_.operands[1] == "-" ? input_ : command_.operands[1];
        if (value.size() > kValueBytesMax)
            co_return fail(Errc::invalid_input, "a value of {} bytes, more than {}", value.size(),
                           kValueBytesMax);
        const StoreRequest request{.op = Op::set, .keys = {key()}, .values = {value}};
        const auto reply = co_await client_.ask(request);
        if (!reply) co_return std::unexpected(reply.error());
        co_return reply->status == Status::ok ? 0 : complain(*reply, key());
    }

    asio::awaitable<Result<int>> add() {
        const auto delta = to_int(command_.operands[1], std::numeric_limits<long long>::min(),
                                  std::numeric_limits<long long>::max());
        if (!delta) co_return fail(Errc::invalid_input, "'{}' is no number", command_.operands[1]);
        const StoreRequest request{.op = Op::add, .keys = {key()}, .delta = *delta};
        const auto reply = co_await client_.ask(request);
        if (!reply) co_return std::unexpected(reply.error());
        if (reply->status != Status::ok) co_return complain(*reply, key());
        PackReader in(reply->results);
        in.array();
        put(fmt::format("{}\n", in.integer()));
        co_return 0;
    }

    asio::awaitable<Result<int>> wait() {
        StoreRequest request{.op = Op::wait, .timeout_ms = timeout_ms(kForeverMs)};
        request.keys.assign(command_.operands.begin(), command_.operands.end());
        const auto reply = co_await client_.ask(request);
        if (!reply) co_return std::unexpected(reply.error());
        const std::string names = join_names(command_.operands);
        co_return reply->status == Status::ok ? 0 : complain(*reply, names);
    }

    asio::awaitable<Result<int>> watch() {
        StoreRequest request{
            .op = Op::watch, .keys = {key()}, .timeout_ms = timeout_ms(kForeverMs)};
        for (;;) {
            const auto reply = co_await client_.ask(request);
            if (!reply) co_return std::unexpected(reply.error());
            if (reply->status == Status::stale) {
                request.number = 0;
                continue;
            }
            if (reply->status != Status::ok) co_return complain(*reply, key());
            PackReader in(reply->results);
            in.array();
            request.number = in.uint();
            if (!in.nil() && !(put(in.bin()) && put("\n"))) co_return 0;
        }
    }

    asio::awaitable<Result<int>> list() {
        const std::string prefix = command_.operands.empty() ? "" : key();
        std::string after;
        for (bool more = true; more;) {
            const StoreRequest request{
                .op = Op::list, .keys = {prefix}, .number = kListPage, .after = after};
            const auto reply = co_await client_.ask(request);
            if (!reply) co_return std::unexpected(reply.error());
            if (reply->status != Status::ok) co_return complain(*reply, prefix);
            PackReader in(reply->results);
            in.array();
            const std::uint32_t count = in.array();
            for (std::uint32_t i = 0; i < count; ++i) {
                after = in.bin();
                put(after + "\n");
            }
            more = in.boolean();
        }
        co_return 0;
    }

    asio::awaitable<Result<int>> erase() {
        const StoreRequest request{.op = Op::erase, .keys = {key()}};
        const auto reply = co_await client_.ask(request);
        if (!reply) co_return std::unexpected(reply.error());
        PackReader in(reply->results);
        in.array();
        if (reply->status == Status::ok && in.boolean()) co_return 0;
        co_return not_there();
    }

    int not_there() const { return complain({Status::not_found, {}}, key()); }

    asio::awaitable<Result<int>> status() {
        const StoreRequest request{.op = Op::status};
        const auto reply = co_await client_.ask(request);
        if (!reply) co_return std::unexpected(reply.error());
        if (reply->status != Status::ok) co_return complain(*reply, "status");
        PackReader in(reply->results);
        in.array();
        const auto answer = watch::parse_object(in.str());
        if (!answer)
            co_return fail(Errc::closed, "the daemon answers in another language: {}",
                           answer.error().message);
        if (!job_.empty() && !has_job(*answer)) {
            log::error("no job \"{}\"", escaped(job_));
            co_return kExitNotThere;
        }
        put(command_.json ? watch::serialize(*answer) + "\n" : status_table(*answer));
        co_return 0;
    }

    const StoreCommand& command_;
    StoreClient& client_;
    std::string job_;
    std::string input_;
};

asio::awaitable<Result<int>> run(const StoreCommand& command, plan::EnvironmentView environment) {
    // Input is read before we connect: from then on a daemon expects heartbeats.
    std::string input;
    if (command.verb == Verb::set && command.operands[1] == "-") input = read_all_input();
    const auto socket = plan::find_variable(environment, "DTRUN_SOCKET");
    const bool of_rank = command.verb != Verb::status && command.daemon.address.empty() &&
                         command.daemon.job.empty() && socket && !socket->empty();
    Result<std::unique_ptr<StoreClient>> client;
    std::string job;
    if (of_rank) {
        client = co_await connect_to_agent(std::string(*socket));
    } else {
        const auto target = plan::find_daemon(command.daemon, environment);
        if (!target) co_return std::unexpected(target.error());
        if (target->job.empty() && command.verb != Verb::status)
            co_return fail(Errc::invalid_input, "which job? --job NAME, or DTRUN_JOB_NAME");
        job = target->job;
        client = co_await connect_to_daemon(*target);
    }
    if (!client) co_return std::unexpected(client.error());
    StoreRun runner(command, **client, std::move(job), std::move(input));
    auto done = co_await runner.run();
    co_await (*client)->close();
    co_return done;
}

int exit_code_of(const Error& error) {
    switch (error.code) {
        case Errc::invalid_input:
        case Errc::not_found:
            return plan::kExitUsage;
        case Errc::denied:
            return plan::kExitAuthentication;
        default:
            return plan::kExitUnreachable;
    }
}

int carry_out(const StoreCommand& command, plan::EnvironmentView environment) {
    ::signal(SIGPIPE, SIG_IGN);
    asio::io_context io(1);
    int status = plan::kExitInternal;
    asio::co_spawn(io, run(command, environment), [&](std::exception_ptr error, Result<int> done) {
        if (error) std::rethrow_exception(error);
        if (!done) log::error("{}", done.error().message);
        status = done ? *done : exit_code_of(done.error());
    });
    io.run();
    return status;
}

// What another program has said may lack anything.

/// 0 if the object has none of that name.
std::int64_t number_of(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains(name);
    return found != nullptr && found->is_number() ? found->to_number<std::int64_t>() : 0;
}

/// Empty if the object has none of that name.
std::string text_of(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains(name);
    return found != nullptr && found->is_string() ? escaped(found->get_string()) : "";
}

/// The objects in an array; none if the object has no such array.
std::vector<json::object> objects_of(const json::object& object, std::string_view name) {
    std::vector<json::object> objects;
    const json::value* found = object.if_contains(name);
    if (found == nullptr || !found->is_array()) return objects;
    for (const json::value& item : found->get_array())
        if (item.is_object()) objects.push_back(item.get_object());
    return objects;
}

std::string member_row(const json::object& member) {
    const json::value* connected = member.if_contains("connected");
    const bool is_lost = connected != nullptr && connected->is_bool() && !connected->get_bool();
    return fmt::format("  {:<18} {:>3} slots {:>3} ranks{}\n", text_of(member, "host"),
                       number_of(member, "slots"), number_of(member, "ranks"),
                       is_lost ? ", not connected" : "");
}

}  // namespace

bool has_job(const json::object& status) {
    return std::ranges::any_of(objects_of(status, "jobs"), [](const json::object& job) {
        return number_of(job, "ranks") != 0 || number_of(job, "keys") != 0 ||
               text_of(job, "phase") != "store";
    });
}

std::string status_table(const json::object& status) {
    std::string out = fmt::format(
        "dtrun serve {}, pid {}, up {} s, {}\n", text_of(status, "version"),
        number_of(status, "pid"), number_of(status, "uptime_s"),
        plural(static_cast<unsigned long long>(number_of(status, "connections")), "connection"));
    const std::vector<json::object> jobs = objects_of(status, "jobs");
    if (jobs.empty()) return out + "no jobs\n";
    out += fmt::format("{:<20} {:<10} {:>5} {:>13} {:>8} {:>10}\n", "JOB", "PHASE", "GEN", "RANKS",
                       "KEYS", "STEP");
    for (const json::object& job : jobs) {
        const std::string ranks =
            fmt::format("{} ({}-{})", number_of(job, "ranks"), number_of(job, "ranks_min"),
                        number_of(job, "ranks_max"));
        const bool steps = job.contains("slowest_step");
        out += fmt::format("{:<20} {:<10} {:>5} {:>13} {:>8} {:>10}\n", text_of(job, "name"),
                           text_of(job, "phase"), number_of(job, "generation"), ranks,
                           number_of(job, "keys"),
                           steps ? fmt::format("{}-{}", number_of(job, "slowest_step"),
                                               number_of(job, "fastest_step"))
                                 : "-");
        for (const json::object& member : objects_of(job, "members")) out += member_row(member);
    }
    return out;
}

int run_store(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_store(words);
    if (const auto status = cli::settled(parsed, store_help)) return *status;
    return carry_out(parsed->own, environment);
}

int show_daemon(const plan::DaemonWords& daemon, bool json, plan::EnvironmentView environment) {
    StoreCommand command;
    command.daemon = daemon;
    command.json = json;
    return carry_out(command, environment);
}

int run_status(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_status(words);
    if (const auto status = cli::settled(parsed, status_help)) return *status;
    if (!parsed->own.page_key) return carry_out(parsed->own, environment);
    const auto secret = plan::read_secret(parsed->own.daemon, environment, false);
    if (!secret) return cli::complain(secret.error());
    return cli::print(watch::page_key(*secret) + "\n");
}

}  // namespace dtrun::commands
