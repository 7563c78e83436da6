// Requests without a wait, as programs submit them.

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_client/client_support.h"
#include "tests/worker_client/fake_server.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <deque>
#include <set>

namespace dtrun::testing {
namespace {

using namespace std::chrono_literals;

dtrun_view view(const std::string& text) {
    return {text.data(), text.size()};
}

struct Ask {
    int operation = 0;
    std::vector<std::string> keys{};
    std::vector<std::string> values{};
    std::optional<std::string> expected{};
    std::int64_t delta = 0;
    std::uint64_t number = 0;
    std::int64_t timeout_ms = DTRUN_FOREVER;
    int more = 0;
};

int submit(dtrun_worker* worker, const Ask& ask, std::uint64_t* id = nullptr) {
    std::vector<dtrun_view> keys, values;
    for (const std::string& key : ask.keys) keys.push_back(view(key));
    for (const std::string& value : ask.values) values.push_back(view(value));
    const std::string old = ask.expected.value_or("");
    const dtrun_view expected = view(old);
    dtrun_submission request{};
    request.size = sizeof request;
    request.operation = ask.operation;
    request.more = ask.more;
    request.keys = keys.data();
    request.key_count = keys.size();
    request.values = values.data();
    request.value_count = values.size();
    request.expected = ask.expected ? &expected : nullptr;
    request.delta = ask.delta;
    request.number = ask.number;
    request.timeout_ms = ask.timeout_ms;
    request.argument = worker;
    return dtrun_submit(worker, &request, id);
}

struct Ended {
    std::uint64_t id = 0;
    int code = 0;
    std::string text;
    int yes = 0;
    std::int64_t number = 0;
    std::optional<std::string> value{};
    std::vector<std::string> items{};
};

Ended complete(dtrun_worker* worker, std::int64_t timeout_ms = 10'000) {
    dtrun_completion completion{};
    completion.size = sizeof completion;
    const int code = dtrun_complete(worker, timeout_ms, &completion);
    if (code != DTRUN_OK) return {.code = code, .text = dtrun_error_text()};
    CHECK(completion.argument == worker);
    Ended ended{completion.id, completion.code, "", completion.yes, completion.number, {}, {}};
    if (ended.code != DTRUN_OK) ended.text = dtrun_error_text();
    if (completion.value.data != nullptr)
        ended.value.emplace(static_cast<const char*>(completion.value.data), completion.value.size);
    for (std::size_t i = 0; i < completion.items.count; ++i)
        ended.items.emplace_back(static_cast<const char*>(completion.items.items[i].data),
                                 completion.items.items[i].size);
    dtrun_free(completion.value.data);
    dtrun_free(completion.items.items);
    return ended;
}

Ended ask(dtrun_worker* worker, const Ask& what) {
    REQUIRE(submit(worker, what) == DTRUN_OK);
    return complete(worker);
}

}  // namespace

TEST_CASE("every operation can be submitted, and has its results in their fields",
          "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    dtrun_worker* const w = worker.handle();
    CHECK(ask(w, {DTRUN_OP_SET, {"a"}, {"1"}}).code == DTRUN_OK);
    CHECK(ask(w, {DTRUN_OP_GET, {"a"}}).value == "1");
    CHECK(ask(w, {DTRUN_OP_WAIT, {"a"}}).code == DTRUN_OK);
    CHECK(ask(w, {.operation = DTRUN_OP_ADD, .keys = {"n"}, .delta = -5}).number == -5);
    CHECK(ask(w, {DTRUN_OP_COMPARE_SET, {"c"}, {"x"}}).yes == 1);
    const Ended compared = ask(w, {DTRUN_OP_COMPARE_SET, {"c"}, {"z"}, "y"});
    CHECK(compared.yes == 0);
    CHECK(compared.value == "x");
    CHECK(ask(w, {DTRUN_OP_APPEND, {"c"}, {"yz"}}).number == 3);
    CHECK(ask(w, {DTRUN_OP_EXISTS, {"a", "c"}}).yes == 1);
    CHECK(ask(w, {DTRUN_OP_EXISTS, {"a", "none"}}).yes == 0);
    CHECK(ask(w, {DTRUN_OP_MULTI_SET, {"m1", "m2"}, {"one", ""}}).code == DTRUN_OK);
    CHECK(ask(w, {DTRUN_OP_MULTI_GET, {"m2", "m1"}}).items == std::vector<std::string>{"", "one"});
    const Ended keys = ask(w, {.operation = DTRUN_OP_LIST_KEYS, .keys = {"m"}, .number = 1});
    CHECK(keys.items == std::vector<std::string>{"m1"});
    CHECK(keys.yes == 1);
    CHECK(ask(w, {DTRUN_OP_PUSH, {"q"}, {"item"}}).number == 1);
    CHECK(ask(w, {DTRUN_OP_LENGTH, {"q"}}).number == 1);
    CHECK(ask(w, {DTRUN_OP_POP, {"q"}}).value == "item");
    const Ended watched = ask(w, {DTRUN_OP_WATCH, {"a"}});
    CHECK(watched.number > 0);
    CHECK(watched.value == "1");
    CHECK(ask(w, {DTRUN_OP_DELETE, {"a"}}).yes == 1);
    const auto revision = static_cast<std::uint64_t>(watched.number);
    CHECK_FALSE(ask(w, {.operation = DTRUN_OP_WATCH, .keys = {"a"}, .number = revision}).value);
    CHECK(ask(w, {DTRUN_OP_COUNT}).number == 4);

    const Ended missing = ask(w, {.operation = DTRUN_OP_GET, .keys = {"none"}, .timeout_ms = 0});
    CHECK(missing.code == DTRUN_NOT_FOUND);
    CHECK(missing.text == "get(\"none\"): no such key");
    const Ended late = ask(w, {.operation = DTRUN_OP_GET, .keys = {"none"}, .timeout_ms = 20});
    CHECK(late.code == DTRUN_TIMED_OUT);
    CHECK(late.text == "get(\"none\"): not there after 0.02 s");
    CHECK(ask(w, {DTRUN_OP_APPEND, {"q2"}, {std::string(70'000, 'k')}}).code == DTRUN_OK);
    CHECK(ask(w, {DTRUN_OP_GET, {std::string(70'000, 'k')}}).code == DTRUN_REFUSED);
}

TEST_CASE("what cannot be a request is refused at once, and has no completion",
          "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    dtrun_worker* const w = worker.handle();
    const std::vector<Ask> wrong = {{DTRUN_OP_GET},
                                    {DTRUN_OP_GET, {"a", "b"}},
                                    {DTRUN_OP_SET, {"a"}},
                                    {DTRUN_OP_MULTI_SET, {"a", "b"}, {"1"}},
                                    {DTRUN_OP_LIST_KEYS, {"a"}},
                                    {0, {"a"}},
                                    {17, {"a"}},
                                    {18},
                                    {300, {"a"}}};
    for (const Ask& ask : wrong) CHECK(submit(w, ask) == DTRUN_INVALID);
    dtrun_submission request{};
    CHECK(dtrun_submit(w, &request, nullptr) == DTRUN_INVALID);
    CHECK(dtrun_submit(w, nullptr, nullptr) == DTRUN_INVALID);
    dtrun_completion completion{};
    CHECK(dtrun_complete(w, 0, &completion) == DTRUN_INVALID);
    CHECK(dtrun_complete(w, 0, nullptr) == DTRUN_INVALID);
    CHECK(complete(w, 0).code == DTRUN_TIMED_OUT);
    CHECK(dtrun_cancel(w, 1) == DTRUN_NOT_FOUND);
    const Variables none;
    Worker alone;
    CHECK(submit(alone.handle(), {DTRUN_OP_COUNT}) == DTRUN_NO_LAUNCHER);
    CHECK(complete(alone.handle(), 0).code == DTRUN_NO_LAUNCHER);
}

TEST_CASE("sixty-four pops wait, and one thread fills their queue and has all items",
          "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    dtrun_worker* const w = worker.handle();
    std::vector<std::uint64_t> ids(64);
    for (std::uint64_t& id : ids) REQUIRE(submit(w, {DTRUN_OP_POP, {"q"}}, &id) == DTRUN_OK);
    CHECK(dtrun_cancel(w, ids.back()) == DTRUN_OK);
    CHECK(complete(w).code == DTRUN_CANCELLED);
    for (int i = 0; i < 63; ++i)
        REQUIRE(submit(w, {DTRUN_OP_PUSH, {"q"}, {std::to_string(i)}}) == DTRUN_OK);
    std::map<std::string, int> items;
    for (int i = 0; i < 126; ++i) {
        const Ended ended = complete(w);
        REQUIRE(ended.code == DTRUN_OK);
        if (ended.value) ++items[*ended.value];
    }
    CHECK(items.size() == 63);
    CHECK(worker.length("q") == 0);
}

TEST_CASE("a C++ program's functions are called with what they have waited for",
          "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    std::vector<std::string> said;
    worker.submit({DTRUN_OP_GET, {"key"}}, [&](const Answer& answer) {
        said.push_back("got " + answer.value.value());
        worker.submit({DTRUN_OP_COUNT},
                      [&](const Answer& count) { said.push_back(std::to_string(count.number)); });
    });
    CHECK(worker.poll(10ms) == 0);
    Worker shared = worker.share();
    shared.submit({DTRUN_OP_SET, {"key"}, {"value"}},
                  [&](const Answer& answer) { said.push_back(answer ? "set" : "not set"); });
    while (said.size() < 3) CHECK(worker.poll() <= 3);
    CHECK(std::set<std::string>(said.begin(), said.end()) ==
          std::set<std::string>{"set", "got value", "1"});
    const std::uint64_t id = worker.submit(
        {DTRUN_OP_POP, {"q"}}, [&](const Answer& answer) { said.push_back(answer.error->what()); });
    CHECK(worker.cancel(id));
    CHECK(worker.poll(forever) == 1);
    CHECK(said.back() == "pop(\"q\"): cancelled");
    CHECK_FALSE(worker.cancel(id));
    CHECK(code_of([&] { worker.submit({DTRUN_OP_GET}, {}); }) == DTRUN_INVALID);
    const auto kept = std::make_shared<int>(1);
    worker.submit({DTRUN_OP_POP, {"q"}}, [kept](const Answer&) {});
    worker.submit({DTRUN_OP_GET, {"none"}}, [kept](const Answer&) {});
    { const Worker ends = std::move(shared); }
    { const Worker ends = std::move(worker); }
    CHECK(kept.use_count() == 1);
}

TEST_CASE("finalizing the last handle tells functions of C++ that nothing comes any more",
          "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    std::vector<int> codes;
    worker.submit({DTRUN_OP_GET, {"never"}},
                  [&](const Answer& answer) { codes.push_back(answer.error->code().value()); });
    worker.submit({DTRUN_OP_POP, {"never"}}, {});
    worker.share().finalize();
    CHECK(codes.empty());
    worker.finalize();
    CHECK(codes == std::vector<int>{DTRUN_CLOSED});
}

TEST_CASE("a C++ program submits transactions, and hears of changes under a prefix",
          "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    std::vector<Answer> answers;
    const auto keep = [&](Answer answer) { answers.push_back(std::move(answer)); };
    Submission watch{DTRUN_OP_WATCH_PREFIX, {"p/"}};
    watch.number = 1;  // of before the first change
    watch.timeout = 20s;
    worker.submit(watch, keep);
    Submission transact{DTRUN_OP_TRANSACT};
    transact.conditions = {{DTRUN_IF_MISSING, "p/key"}};
    transact.actions = {{DTRUN_DO_SET, "p/key", "value"}};
    worker.submit(transact, keep);
    while (answers.size() < 2) worker.poll(1s);
    worker.submit(transact, keep);
    while (answers.size() < 3) worker.poll(1s);
    const auto is_of_watch = [](const Answer& answer) { return !answer.changes.empty(); };
    const auto seen = std::find_if(answers.begin(), answers.end(), is_of_watch);
    REQUIRE(seen != answers.end());
    CHECK(seen->changes[0].key == "p/key");
    CHECK(seen->changes[0].value == "value");
    CHECK(seen->changes[0].kind == DTRUN_KEY_SET);
    CHECK_FALSE(answers[2].yes);
    CHECK(answers[2].number == 0);
}

TEST_CASE("an item is popped or left, however a cancel and a push meet", "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    dtrun_worker* const w = worker.handle();
    std::uint64_t popped = 0;
    constexpr std::uint64_t kRounds = 200;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
        std::uint64_t id = 0;
        REQUIRE(submit(w, {DTRUN_OP_POP, {"q"}}, &id) == DTRUN_OK);
        std::thread pushes([&] { worker.push("q", "item"); });
        dtrun_cancel(w, id);
        const Ended ended = complete(w);
        CHECK(ended.id == id);
        CHECK((ended.code == DTRUN_OK || ended.code == DTRUN_CANCELLED));
        popped += ended.code == DTRUN_OK ? 1 : 0;
        pushes.join();
    }
    CHECK(popped + worker.length("q") == kRounds);
    CHECK(complete(w, 0).code == DTRUN_TIMED_OUT);
}

TEST_CASE("requests under way survive lost connections, and are done once", "[client][submit]") {
    const std::string secret = "0123456789abcdef0123456789abcdef";
    FakeServer daemon = FakeServer::daemon(1, secret);
    const TempDir dir;
    const Variables variables({{"DTRUN_SERVE", daemon.address()},
                               {"DTRUN_JOB_NAME", "test"},
                               {"DTRUN_SECRET_FILE", dir.write("secret", secret, 0600)}});
    Worker worker;
    dtrun_worker* const w = worker.handle();
    int fd = -1;
    REQUIRE(dtrun_event_fd(w, &fd) == DTRUN_OK);
    constexpr int kCount = 3'000;
    for (int i = 0; i < kCount; ++i) {
        REQUIRE(submit(w, {.operation = DTRUN_OP_ADD, .keys = {"n"}, .delta = 1}) == DTRUN_OK);
        REQUIRE(submit(w, {DTRUN_OP_GET, {"late"}}) == DTRUN_OK);
    }
    std::int64_t largest = 0;
    int adds = 0, gets = 0, dropped = 0;
    bool is_set = false;
    while (adds + gets < 2 * kCount + 1) {
        pollfd entry{fd, POLLIN, 0};
        REQUIRE(::poll(&entry, 1, 20'000) == 1);
        for (;;) {
            const Ended ended = complete(w, 0);
            if (ended.id == 0) break;
            REQUIRE(ended.code == DTRUN_OK);
            ended.value ? ++gets : ++adds;
            largest = std::max(largest, ended.number);
        }
        if (dropped < 2 && adds > (dropped + 1) * 500) {
            ++dropped;
            daemon.drop_connections();
        }
        if (adds > 2'000 && !std::exchange(is_set, true))
            REQUIRE(submit(w, {DTRUN_OP_SET, {"late"}, {"value"}}) == DTRUN_OK);
    }
    CHECK(largest == kCount);
    CHECK(worker.get("n") == std::to_string(kCount));
}

TEST_CASE("a request's time is over while a daemon does not answer", "[client][submit]") {
    const std::string secret = "0123456789abcdef0123456789abcdef";
    FakeServer daemon = FakeServer::daemon(1, secret);
    const TempDir dir;
    const Variables variables({{"DTRUN_SERVE", daemon.address()},
                               {"DTRUN_JOB_NAME", "test"},
                               {"DTRUN_SECRET_FILE", dir.write("secret", secret, 0600)}});
    WorkerOptions options;
    options.call_timeout = 100ms;
    Worker worker(options);
    dtrun_worker* const w = worker.handle();
    daemon.freeze();
    REQUIRE(submit(w, {DTRUN_OP_SET, {"a"}, {"1"}}) == DTRUN_OK);
    REQUIRE(submit(w, {.operation = DTRUN_OP_GET, .keys = {"a"}, .timeout_ms = 10}) == DTRUN_OK);
    CHECK(complete(w).text == "set(\"a\"): no answer in time; it may have been done");
    CHECK(complete(w).text == "get(\"a\"): no answer in time");
    daemon.thaw();
}

TEST_CASE("finalizing ends the thread that completes, with requests in flight",
          "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    dtrun_worker* const w = worker.handle();
    for (int i = 0; i < 1'000; ++i) REQUIRE(submit(w, {DTRUN_OP_GET, {"never"}}) == DTRUN_OK);
    Ended ended;
    std::thread completes([&] { ended = complete(w, DTRUN_FOREVER); });
    std::this_thread::sleep_for(50ms);
    worker.finalize();
    completes.join();
    CHECK(ended.code == DTRUN_CLOSED);
}

TEST_CASE("a forked child submits requests of its own", "[client][submit][fork]") {
    if (!kCanFork) {
        WARN("SKIPPED: TSan does not follow forks of several threads");
        return;
    }
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    dtrun_worker* const w = worker.handle();
    REQUIRE(submit(w, {DTRUN_OP_GET, {"key"}}) == DTRUN_OK);
    const pid_t child = ::fork();
    if (child == 0) {
        int fd = -1;
        int failed = dtrun_event_fd(w, &fd) == DTRUN_OK ? 0 : 1;
        failed |= submit(w, {DTRUN_OP_SET, {"key"}, {"of the child"}}) == DTRUN_OK ? 0 : 2;
        pollfd entry{fd, POLLIN, 0};
        failed |= ::poll(&entry, 1, 10'000) == 1 ? 0 : 4;
        failed |= complete(w).id == 1 ? 0 : 8;
        failed |= complete(w, 0).code == DTRUN_TIMED_OUT ? 0 : 16;
        worker.finalize();
        ::_exit(failed);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(complete(w).value == "of the child");
}

TEST_CASE("signals do not end a wait for completions, but the program may", "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    dtrun_worker* const w = worker.handle();
    struct sigaction counts {
    }, before{};
    static std::atomic<int> seen;
    seen = 0;
    counts.sa_handler = [](int) { ++seen; };
    ::sigaction(SIGUSR1, &counts, &before);
    REQUIRE(submit(w, {DTRUN_OP_GET, {"key"}}) == DTRUN_OK);
    const pthread_t waits = ::pthread_self();
    std::thread sets([&] {
        for (int i = 0; i < 50; ++i) {
            ::pthread_kill(waits, SIGUSR1);
            std::this_thread::sleep_for(1ms);
        }
        worker.set("key", "value");
    });
    CHECK(complete(w).value == "value");
    sets.join();
    CHECK(seen > 0);
    ::sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace dtrun::testing
