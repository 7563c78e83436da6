// Redis' protocol, RESP3 (https://redis.io/docs/reference/protocol-spec/): with it a connection that
// has subscribed to a channel can still give commands.

#include "bench/rendezvous_protocol.h"

#include <charconv>
#include <vector>

namespace dtrun::bench {
namespace {

std::int64_t number(std::string_view text) {
    std::int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

/// Of the first reply in `text`, with its line end; 0 if it is not all there.
std::size_t reply_bytes(std::string_view text) {
    const std::size_t end = text.find("\r\n");
    if (end == text.npos) return 0;
    std::size_t bytes = end + 2;
    const std::int64_t count = number(text.substr(1, end - 1));
    switch (text.front()) {
        case '$':
            if (count >= 0) bytes += static_cast<std::size_t>(count) + 2;
            return bytes <= text.size() ? bytes : 0;
        case '*':
        case '>':
        case '%':
            for (std::int64_t i = 0; i < (text.front() == '%' ? 2 * count : count); ++i) {
                const std::size_t item = reply_bytes(text.substr(bytes));
                if (item == 0) return 0;
                bytes += item;
            }
            return bytes;
        default:
            return bytes;
    }
}

void put_word(std::string& out, std::string_view word) {
    out += '$';
    out += std::to_string(word.size());
    out += "\r\n";
    out += word;
    out += "\r\n";
}

/// The one who is counted last tells the others through a channel.
class Redis final : public Protocol {
public:
    explicit Redis(std::uint32_t clients) : clients_(clients), arrivals_(clients) {}

    Progress begin(Task task, Connection& c) override {
        switch (task) {
            case Task::greet:
                c.out += "PING\r\n";
                break;
            case Task::subscribe:
                c.out += "HELLO 3\r\nSUBSCRIBE " + run_ + "\r\n";
                break;
            case Task::set:
                c.out += "*3\r\n$3\r\nSET\r\n";
                put_word(c.out, c.key);
                put_word(c.out, c.value);
                break;
            case Task::get:
                c.out += "*2\r\n$3\r\nGET\r\n";
                put_word(c.out, c.key);
                break;
            case Task::barrier:
                c.out += "*2\r\n$4\r\nINCR\r\n";
                put_word(c.out, run_);
                arrivals_[c.client] = {.replies_due = 1};
                break;
        }
        return Progress::more;
    }

    Progress received(Task task, Connection& c, std::string_view& bytes) override {
        Progress progress = Progress::more;
        while (progress == Progress::more) {
            const std::size_t size = reply_bytes(bytes);
            if (size == 0) return Progress::more;
            progress = answer(task, c, bytes.substr(0, size));
            bytes.remove_prefix(size);
        }
        return progress;
    }

private:
    struct Arrival {
        int replies_due = 0;
        bool counted = false;
        bool released = false;
    };

    Progress answer(Task task, Connection& c, std::string_view reply) {
        const auto done_if = [](bool right) { return right ? Progress::done : Progress::failed; };
        switch (task) {
            case Task::greet:
                return done_if(reply == "+PONG\r\n");
            case Task::subscribe:
                return reply.front() == '%' ? Progress::more : done_if(reply.front() == '>');
            case Task::set:
                return done_if(reply == "+OK\r\n");
            case Task::get:
                return done_if(reply.substr(reply.find('\n') + 1).starts_with(c.value));
            case Task::barrier:
                return barrier_answer(c, reply);
        }
        return Progress::failed;
    }

    Progress barrier_answer(Connection& c, std::string_view reply) {
        Arrival& arrival = arrivals_[c.client];
        if (reply.front() == '>') {
            arrival.released = true;
        } else if (reply.front() == ':') {
            --arrival.replies_due;
            if (!arrival.counted && number(reply.substr(1)) % clients_ == 0) {
                c.out += "PUBLISH " + run_ + " go\r\n";
                ++arrival.replies_due;
            }
            arrival.counted = true;
        } else {
            return Progress::failed;
        }
        return arrival.released && arrival.replies_due == 0 ? Progress::done : Progress::more;
    }

    std::uint32_t clients_;
    std::vector<Arrival> arrivals_;
};

}  // namespace

std::unique_ptr<Protocol> make_redis(std::uint32_t clients) {
    return std::make_unique<Redis>(clients);
}

}  // namespace dtrun::bench
