#include "worker/client/c_worker.h"

#include "base/interfaces.h"
#include "base/sized_struct.h"

#include <dtrun_version.h>
#include <malloc.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

extern char** environ;

namespace dtrun::embedded {
namespace {

constexpr std::int64_t kAgentTimeoutMs = 60'000;
/// Tasks of a step start together, but what they do before they come here may take its time.
constexpr std::int64_t kStepTimeoutMs = 300'000;
/// What Enter grants a job's ranks to come together, and a little more to hear of it.
constexpr std::int64_t kDaemonTimeoutMs = 610'000;

/// A plain array, no std::string: a thread that ends then runs no destructor of ours, and storing a
/// text cannot fail.
thread_local char error_text[1'024];

Environment read_environment() {
    Environment environment;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const std::size_t equals = text.find('=');
        if (equals != text.npos)
            environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    return environment;
}

/// What a launcher grants a process to get its place. In an elastic job that may have been started for a
/// generation which begins when the others have come to the end of theirs.
std::int64_t usual_timeout_ms(const Surroundings& surroundings) {
    if (surroundings.step) return kStepTimeoutMs;
    if (surroundings.launcher != Launcher::agent) return kDaemonTimeoutMs;
    return surroundings.elastic ? DTRUN_FOREVER : kAgentTimeoutMs;
}

Outcome<std::unique_ptr<Client>> start_client(const dtrun_options& options,
                                              std::function<bool()> give_up) {
    auto surroundings = find_launcher(read_environment());
    if (!surroundings) return std::unexpected(surroundings.error());
    if (surroundings->info.host_name.empty()) surroundings->info.host_name = dtrun::host_name();
    std::optional<ClientCredentials> credentials;
    if (surroundings->daemon) {
        auto read = read_credentials(*surroundings->daemon);
        if (!read) return std::unexpected(read.error());
        credentials = *read;
    }
    const std::int64_t asked = options.timeout_ms;
    const WaitContext context{moment_after(asked < 0 ? usual_timeout_ms(*surroundings) : asked),
                              std::move(give_up)};
    auto client = std::make_unique<Client>(std::move(*surroundings), std::move(credentials),
                                           Client::Role::rank, options.elastic != 0);
    if (auto started = client->start(context); !started)
        return failure(started.error().code, "no place among the ranks: {}", started.error().text);
    return client;
}

/// A large block that the program has freed, for the next large value. The allocator would give it back to
/// the system, which then has to clear every page of the next one: that takes longer than all the rest.
std::atomic<void*> spare_block{nullptr};
constexpr std::size_t kLargeBlock = 128u << 10;

/// As malloc(). Whoever has smaller values now does without the spare.
char* take_block(std::size_t size) {
    void* block = spare_block.load(std::memory_order_relaxed) == nullptr
                      ? nullptr
                      : spare_block.exchange(nullptr);
    if (block != nullptr && (size < kLargeBlock || size > ::malloc_usable_size(block))) {
        std::free(block);
        block = nullptr;
    }
    if (block == nullptr) block = std::malloc(size);
    if (block == nullptr) throw std::bad_alloc();
    return static_cast<char*>(block);
}

void give_block(void* block) {
    const bool is_large = block != nullptr && ::malloc_usable_size(block) >= kLargeBlock;
    std::free(is_large ? spare_block.exchange(block) : block);
}

}  // namespace

int keep_error(int code, std::string_view text) noexcept {
    const std::size_t size = std::min(text.size(), sizeof error_text - 1);
    std::memcpy(error_text, text.data(), size);
    error_text[size] = '\0';
    return code;
}

const dtrun_worker& origin_of(const dtrun_worker* worker) {
    while (worker->origin != nullptr) worker = worker->origin;
    return *worker;
}

std::int64_t call_timeout(const dtrun_worker* worker) {
    const std::int64_t timeout_ms = origin_of(worker).options.call_timeout_ms;
    return timeout_ms > 0 ? timeout_ms : DTRUN_FOREVER;
}

Client& client_of(dtrun_worker* worker) {
    if (worker->origin != nullptr) return client_of(worker->origin);
    Client* client = worker->client.load();
    if (client->pid() == ::getpid()) return *client;
    // In a forked child the parent's client is left as it is: the threads that may hold its locks
    // do not exist here.
    auto helper =
        std::make_unique<Client>(client->inherited(), client->credentials(), Client::Role::helper);
    if (worker->client.compare_exchange_strong(client, helper.get())) return *helper.release();
    return *client;
}

Unlocked::Unlocked(const dtrun_options& options) : options_(options) {
    if (options_.unlock != nullptr) state_ = options_.unlock();
}

Unlocked::~Unlocked() {
    lock();
}

void Unlocked::lock() {
    if (options_.lock != nullptr) options_.lock(state_);
}

std::function<bool()> Unlocked::give_up() {
    if (options_.interrupted == nullptr) return {};
    return [this] {
        lock();
        const bool stop = options_.interrupted() != 0;
        if (options_.unlock != nullptr) state_ = options_.unlock();
        return stop;
    };
}

dtrun_bytes copy_out(std::string_view bytes) {
    char* data = take_block(bytes.size() + 1);
    *std::copy(bytes.begin(), bytes.end(), data) = '\0';
    return {data, bytes.size()};
}

dtrun_list copy_out(const std::vector<std::string_view>& items) {
    std::size_t size = std::max<std::size_t>(items.size(), 1) * sizeof(dtrun_bytes);
    for (const std::string_view item : items) size += item.size() + 1;
    char* block = take_block(size);
    const dtrun_list list{reinterpret_cast<dtrun_bytes*>(block), items.size()};
    char* next = block + items.size() * sizeof(dtrun_bytes);
    for (std::size_t i = 0; i < items.size(); ++i) {
        list.items[i] = {next, items[i].size()};
        next = std::copy(items[i].begin(), items[i].end(), next);
        *next++ = '\0';
    }
    return list;
}

void copy_out(std::vector<dtrun_key_change> changes, const std::vector<std::string_view>& texts,
              dtrun_key_changes& to) {
    std::size_t size = std::max<std::size_t>(changes.size(), 1) * sizeof(dtrun_key_change);
    for (const std::string_view text : texts) size += text.size() + 1;
    char* block = take_block(size);
    char* next = block + changes.size() * sizeof(dtrun_key_change);
    const auto place = [&next](std::string_view text) {
        const dtrun_bytes placed{next, text.size()};
        next = std::copy(text.begin(), text.end(), next);
        *next++ = '\0';
        return placed;
    };
    to.items = reinterpret_cast<dtrun_key_change*>(block);
    to.count = changes.size();
    for (std::size_t i = 0; i < changes.size(); ++i) {
        changes[i].key = place(texts[2 * i]);
        if (changes[i].kind == DTRUN_KEY_SET) changes[i].value = place(texts[2 * i + 1]);
        to.items[i] = changes[i];
    }
}

}  // namespace dtrun::embedded

using dtrun::embedded::Client;
using dtrun::embedded::keep_error;
using dtrun::embedded::RankInfo;
using dtrun::embedded::Unlocked;

extern "C" {

int dtrun_init(const dtrun_options* options, dtrun_worker** worker) {
    if (worker == nullptr) return keep_error(DTRUN_INVALID, "worker is NULL");
    const dtrun::Uncancelled uncancelled;
    try {
        auto made = std::make_unique<dtrun_worker>();
        made->options.timeout_ms = DTRUN_FOREVER;
        if (options != nullptr) {
            const auto read =
                dtrun::read_sized(*options, offsetof(dtrun_options, elastic), "dtrun_options");
            if (!read) return keep_error(DTRUN_INVALID, read.error().message);
            made->options = *read;
        }
        const dtrun_options& given = made->options;
        if ((given.unlock == nullptr) != (given.lock == nullptr))
            return keep_error(DTRUN_INVALID, "options: unlock and lock go together");
        Unlocked unlocked(given);
        auto client = dtrun::embedded::start_client(given, unlocked.give_up());
        if (!client) return keep_error(client.error().code, client.error().text);
        made->client = client->release();
        *worker = made.release();
        return DTRUN_OK;
    } catch (const std::exception& error) {
        return keep_error(DTRUN_INTERNAL, error.what());
    }
}

void dtrun_finalize(dtrun_worker* worker, const char* failure) {
    if (worker == nullptr) return;
    const dtrun::Uncancelled uncancelled;
    Client* client = worker->client;
    if (client != nullptr &&
        client->pid() == ::getpid()) {  // a forked child leaves its parent's client alone
        Unlocked unlocked(worker->options);
        client->leave(failure != nullptr ? failure : "", unlocked.give_up());
        delete client;
    }
    delete worker;
}

int dtrun_share(dtrun_worker* worker, dtrun_worker** shared) {
    if (worker == nullptr || shared == nullptr)
        return keep_error(DTRUN_INVALID, "worker or shared is NULL");
    auto* made = new (std::nothrow) dtrun_worker();
    if (made == nullptr) return keep_error(DTRUN_INTERNAL, "out of memory");
    made->origin = worker->origin != nullptr ? worker->origin : worker;
    made->prefix = worker->prefix;
    *shared = made;
    return DTRUN_OK;
}

int dtrun_prefix(dtrun_worker* worker, dtrun_view prefix, dtrun_worker** handle) {
    if (handle == nullptr) return keep_error(DTRUN_INVALID, "handle is NULL");
    dtrun_worker* made = nullptr;
    if (const int code = dtrun_share(worker, &made); code != DTRUN_OK) return code;
    made->options = worker->options;
    try {
        made->prefix = worker->prefix;
        made->prefix += dtrun::embedded::text_of(prefix);
    } catch (const std::exception& error) {
        delete made;
        return keep_error(DTRUN_INTERNAL, error.what());
    }
    *handle = made;
    return DTRUN_OK;
}

const char* dtrun_error_text(void) {
    return dtrun::embedded::error_text;
}

const char* dtrun_code_name(int code) {
    switch (code) {
        case DTRUN_OK:
            return "ok";
        case DTRUN_NOT_FOUND:
            return "not found";
        case DTRUN_TIMED_OUT:
            return "timed out";
        case DTRUN_STALE:
            return "stale generation";
        case DTRUN_CANCELLED:
            return "cancelled";
        case DTRUN_REFUSED:
            return "refused";
        case DTRUN_WRONG_TYPE:
            return "wrong type";
        case DTRUN_CLOSED:
            return "closed";
        case DTRUN_INVALID:
            return "invalid argument";
        case DTRUN_NO_LAUNCHER:
            return "no launcher";
        case DTRUN_FORKED:
            return "forked";
        case DTRUN_INTERNAL:
            return "internal";
        case DTRUN_PEER_LOST:
            return "peer lost";
        default:
            return "unknown";
    }
}

void dtrun_free(void* data) {
    dtrun::embedded::give_block(data);
}

const char* dtrun_version(void) {
    return DTRUN_VERSION;
}

}  // extern "C"

namespace {

/// A fact of the place, or `missing` when there is no worker.
template <class Read>
auto fact(const dtrun_worker* worker,
          decltype(std::declval<Read>()(std::declval<Client&>())) missing, Read read) {
    if (worker == nullptr) {
        keep_error(DTRUN_INVALID, "worker is NULL");
        return missing;
    }
    const dtrun::Uncancelled uncancelled;
    // The worker is const for its user; a forked child's first call changes what is behind it.
    return read(dtrun::embedded::client_of(const_cast<dtrun_worker*>(worker)));
}

std::uint32_t number_of(const dtrun_worker* worker, std::uint32_t RankInfo::*part) {
    return fact(worker, DTRUN_UNKNOWN, [part](Client& client) { return client.rank_info().*part; });
}

}  // namespace

extern "C" {

const char* dtrun_launcher(const dtrun_worker* worker) {
    return fact(worker, "",
                [](Client& client) { return dtrun::embedded::launcher_name(client.launcher()); });
}

const char* dtrun_job(const dtrun_worker* worker) {
    return fact(worker, "", [](Client& client) { return client.job().c_str(); });
}

const char* dtrun_host_name(const dtrun_worker* worker) {
    return fact(worker, "", [](Client& client) { return client.host_name().c_str(); });
}

uint64_t dtrun_generation(const dtrun_worker* worker) {
    return fact(worker, 0, [](Client& client) { return client.generation(); });
}

uint32_t dtrun_rank(const dtrun_worker* worker) {
    return number_of(worker, &RankInfo::rank);
}

uint32_t dtrun_world_size(const dtrun_worker* worker) {
    return number_of(worker, &RankInfo::world_size);
}

uint32_t dtrun_local_rank(const dtrun_worker* worker) {
    return number_of(worker, &RankInfo::local_rank);
}

uint32_t dtrun_local_size(const dtrun_worker* worker) {
    return number_of(worker, &RankInfo::local_size);
}

uint32_t dtrun_cross_rank(const dtrun_worker* worker) {
    return number_of(worker, &RankInfo::cross_rank);
}

uint32_t dtrun_cross_size(const dtrun_worker* worker) {
    return number_of(worker, &RankInfo::cross_size);
}

uint32_t dtrun_node_rank(const dtrun_worker* worker) {
    return number_of(worker, &RankInfo::node_rank);
}

uint32_t dtrun_node_count(const dtrun_worker* worker) {
    return number_of(worker, &RankInfo::node_count);
}

}  // extern "C"
