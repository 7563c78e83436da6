// TCPStore's protocol as PyTorch 2.13's own client speaks it (TCPStore.cpp, TCPStoreLibUvBackend.cpp):
// an operation's byte, then lengths as u64 and numbers, all little-endian.

#include "bench/rendezvous_protocol.h"

#include <fmt/format.h>
#include <bit>
#include <cstring>

namespace dtrun::bench {
namespace {

static_assert(std::endian::native == std::endian::little);

enum class Query : std::uint8_t {
    validate = 0,
    set = 1,
    get = 3,
    wait = 6,
    ping = 13,
    barrier = 18,
};

constexpr std::uint32_t kValidation = 0x3c85'f7ce;
constexpr char kStopWaiting = 0;

template <class T>
void put(std::string& out, T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
}

void put_text(std::string& out, std::string_view prefix, std::string_view text) {
    put<std::uint64_t>(out, prefix.size() + text.size());
    out += prefix;
    out += text;
}

constexpr std::string_view kKeyPrefix = "/";  // of every key, by TCPStore's client

class TcpStore final : public Protocol {
public:
    explicit TcpStore(std::uint32_t clients) : clients_(clients) {}

    Progress begin(Task task, Connection& c) override {
        switch (task) {
            case Task::greet:
                put(c.out, Query::validate);
                put(c.out, kValidation);
                put(c.out, Query::ping);
                put(c.out, static_cast<std::uint32_t>(getpid()));
                return Progress::more;
            case Task::set:  // has no answer
                put(c.out, Query::set);
                put_text(c.out, kKeyPrefix, c.key);
                put_text(c.out, {}, c.value);
                return Progress::done;
            case Task::get:
                put(c.out, Query::wait);
                put<std::uint64_t>(c.out, 1);
                put_text(c.out, kKeyPrefix, c.key);
                c.step = 0;
                return Progress::more;
            case Task::barrier:
                put(c.out, Query::barrier);
                put_text(c.out, kKeyPrefix, fmt::format("{}/{}", run_, c.barriers));
                put<std::int64_t>(c.out, clients_);
                return Progress::more;
        }
        return Progress::failed;
    }

    Progress received(Task task, Connection& c, std::string_view& bytes) override {
        switch (task) {
            case Task::greet:
                if (bytes.size() < sizeof(std::uint32_t)) return Progress::more;
                bytes.remove_prefix(sizeof(std::uint32_t));
                return Progress::done;
            case Task::get:
                return c.step == 0 ? waited(c, bytes) : got(c, bytes);
            case Task::barrier:
                return take_stop_waiting(bytes) ? Progress::done : Progress::failed;
            case Task::set:
                break;
        }
        return Progress::failed;
    }

private:
    static bool take_stop_waiting(std::string_view& bytes) {
        const bool stop = bytes.front() == kStopWaiting;
        bytes.remove_prefix(1);
        return stop;
    }

    static Progress waited(Connection& c, std::string_view& bytes) {
        if (!take_stop_waiting(bytes)) return Progress::failed;
        put(c.out, Query::get);
        put_text(c.out, kKeyPrefix, c.key);
        c.step = 1;
        return Progress::more;
    }

    static Progress got(const Connection& c, std::string_view& bytes) {
        const std::size_t wanted = sizeof(std::uint64_t) + c.value.size();
        if (bytes.size() < wanted) return Progress::more;
        const bool right = bytes.substr(sizeof(std::uint64_t), c.value.size()) == c.value;
        bytes.remove_prefix(wanted);
        return right ? Progress::done : Progress::failed;
    }

    std::uint32_t clients_;
};

}  // namespace

std::unique_ptr<Protocol> make_tcpstore(std::uint32_t clients) {
    return std::make_unique<TcpStore>(clients);
}

}  // namespace dtrun::bench
