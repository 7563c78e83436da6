// The two that speak HTTP/1.1: etcd's v3 API through its JSON gateway, and Horovod's key-value store.

#include "bench/rendezvous_protocol.h"

#include <fmt/format.h>
#include <charconv>
#include <optional>

namespace dtrun::bench {
namespace {

struct Response {
    int status = 0;  ///< 0: one that is not understood
    std::string_view body;
};

std::uint64_t number_behind(std::string_view text, std::string_view name) {
    const std::size_t at = text.find(name);
    std::uint64_t value = 0;
    if (at != text.npos)
        std::from_chars(text.data() + at + name.size(), text.data() + text.size(), value);
    return value;
}

/// Takes a response whose length is announced; nothing if it is not all there.
std::optional<Response> take_response(std::string_view& bytes) {
    const std::size_t head_bytes = bytes.find("\r\n\r\n");
    if (head_bytes == bytes.npos) return std::nullopt;
    const std::string_view head = bytes.substr(0, head_bytes);
    if (!head.starts_with("HTTP/1.") || !head.contains("Content-Length: ")) return Response{};
    const std::size_t body_bytes = number_behind(head, "Content-Length: ");
    if (bytes.size() < head_bytes + 4 + body_bytes) return std::nullopt;
    const Response response{.status = static_cast<int>(number_behind(head, " ")),
                            .body = bytes.substr(head_bytes + 4, body_bytes)};
    bytes.remove_prefix(head_bytes + 4 + body_bytes);
    return response;
}

void put_request(std::string& out, std::string_view method, std::string_view path,
                 std::string_view body) {
    fmt::format_to(std::back_inserter(out),
                   "{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{}", method,
                   path, body.size(), body);
}

std::string base64(std::string_view text) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t i = 0; i < text.size(); i += 3) {
        std::uint32_t group = 0;
        for (std::size_t j = i; j < i + 3; ++j)
            group = group << 8 | (j < text.size() ? static_cast<std::uint8_t>(text[j]) : 0u);
        for (std::size_t j = 0; j < 4; ++j)
            out += i + j > text.size() ? '=' : kDigits[group >> (18 - 6 * j) & 63];
    }
    return out;
}

/// Everybody puts the same key; its version counts them. Who is counted last puts a key that all
/// watch, each over its second connection.
class Etcd final : public Protocol {
public:
    explicit Etcd(std::uint32_t clients) : clients_(clients) {}

    bool two_connections() const override { return true; }

    Progress begin(Task task, Connection& c) override {
        if (c.second) {
            if (task == Task::subscribe)
                post(c, "watch",
                     fmt::format(R"({{"create_request":{{"key":"{}"}}}})", base64(run_ + "go")));
            return task == Task::subscribe || task == Task::barrier ? Progress::more
                                                                    : Progress::done;
        }
        switch (task) {
            case Task::greet:
            case Task::get:
                post(c, "kv/range", fmt::format(R"({{"key":"{}"}})", base64(c.key)));
                return Progress::more;
            case Task::subscribe:
                return Progress::done;
            case Task::set:
                put_key(c, c.key, c.value);
                return Progress::more;
            case Task::barrier:
                post(c, "kv/put", fmt::format(R"({{"key":"{}","prev_kv":true}})", base64(run_)));
                c.step = 0;
                return Progress::more;
        }
        return Progress::failed;
    }

    Progress received(Task task, Connection& c, std::string_view& bytes) override {
        if (c.second) return notified(task, bytes);
        while (const auto response = take_response(bytes)) {
            if (response->status != 200) return Progress::failed;
            if (task == Task::barrier) {
                arrived(c, response->body);
            } else {
                const bool right = task != Task::get || response->body.contains(base64(c.value));
                return right ? Progress::done : Progress::failed;
            }
        }
        return Progress::more;
    }

private:
    static void post(Connection& c, std::string_view service, std::string_view body) {
        put_request(c.out, "POST", fmt::format("/v3/{}", service), body);
    }
    static void put_key(Connection& c, std::string_view key, std::string_view value) {
        post(c, "kv/put",
             fmt::format(R"({{"key":"{}","value":"{}"}})", base64(key), base64(value)));
    }

    /// Only the answer to an arrival has the key as it was before; the very first has none.
    void arrived(Connection& c, std::string_view body) {
        const std::uint64_t before = number_behind(body, R"("version":")");
        if (before > 0 && (before + 1) % clients_ == 0) put_key(c, run_ + "go", "");
    }

    /// A watch is one endless response, a line of JSON for each message.
    static Progress notified(Task task, std::string_view& bytes) {
        const std::string_view sign =
            task == Task::subscribe ? R"("created":true)" : R"("events":)";
        for (std::size_t end; (end = bytes.find('\n')) != bytes.npos;) {
            const bool found = bytes.substr(0, end).contains(sign);
            bytes.remove_prefix(end + 1);
            if (found) return Progress::done;
        }
        return Progress::more;
    }

    std::uint32_t clients_;
};

/// Barrier: client 0 asks for every other one's key in turn, all others for the one that client 0
/// puts then; whoever asks in vain asks again later, as Horovod's own clients do.
class Horovod final : public Protocol {
public:
    explicit Horovod(std::uint32_t clients) : clients_(clients) {}

    bool connection_per_request() const override { return true; }

    Progress begin(Task task, Connection& c) override {
        c.step = 0;
        switch (task) {
            case Task::greet:
            case Task::get:
                put_request(c.out, "GET", "/bench/" + c.key, "");
                return Progress::more;
            case Task::subscribe:
                return Progress::done;
            case Task::set:
                put_request(c.out, "PUT", "/bench/" + c.key, c.value);
                return Progress::more;
            case Task::barrier:
                put_request(c.out, "PUT", barrier_path(c, c.client), "");
                return Progress::more;
        }
        return Progress::failed;
    }

    Progress received(Task task, Connection& c, std::string_view& bytes) override {
        const auto response = take_response(bytes);
        if (!response) return Progress::more;
        if (task == Task::barrier) return barrier_answer(c, response->status);
        const bool right =
            task == Task::greet ||
            (response->status == 200 && (task == Task::set || response->body == c.value));
        return right ? Progress::done : Progress::failed;
    }

private:
    std::string barrier_path(const Connection& c, std::uint64_t client) const {
        return fmt::format("/barrier{}.{}/{}", run_, c.barriers, client);
    }

    /// Client 0: step 0 is the put of its arrival, 1 to clients - 1 are the others, then "go".
    /// Others: step 0 as well, step 1 is "go", which goes by the name of one client too many.
    Progress barrier_answer(Connection& c, int status) {
        const std::uint64_t last = c.client == 0 ? clients_ : 1;
        if (status == 200 && c.step == last) return Progress::done;
        if (status != 200 && (status != 404 || c.step == 0)) return Progress::failed;
        if (status == 200) ++c.step;
        if (c.client == 0 && c.step == last)
            put_request(c.out, "PUT", barrier_path(c, clients_), "");
        else
            put_request(c.out, "GET", barrier_path(c, c.client == 0 ? c.step : clients_), "");
        return status == 200 ? Progress::more : Progress::again;
    }

    std::uint32_t clients_;
};

}  // namespace

std::unique_ptr<Protocol> make_etcd(std::uint32_t clients) {
    return std::make_unique<Etcd>(clients);
}

std::unique_ptr<Protocol> make_horovod(std::uint32_t clients) {
    return std::make_unique<Horovod>(clients);
}

}  // namespace dtrun::bench
