#pragma once

#include <cstddef>
#include <expected>
#include <memory>
#include <string>
#include <string_view>

namespace dtrun::stores {

/// An answer; statuses of 400 and more carry a sentence for a person as their body.
struct HttpAnswer {
    unsigned status = 200;
    std::shared_ptr<const std::string> body{};  ///< nullptr: empty

    std::string_view bytes() const { return body ? std::string_view(*body) : std::string_view(); }
};

/// An answer with a text of its own.
HttpAnswer http_answer(unsigned status, std::string body);

/// What goes before the body. Horovod's client looks for "Content-Length" in exactly this spelling.
std::string http_answer_head(const HttpAnswer& answer);

struct HttpRequest {
    std::string method;
    std::string target;  ///< begins with '/'; as it came, nothing decoded
    std::string body;
};

/// Reads one HTTP/1.x request (RFC 9112), of those that carry their length: what Horovod's C++ and
/// Python clients send. Pure and total; nothing is accepted on a guess.
class HttpRequestReader {
public:
    static constexpr std::size_t kHeadBytesMax = 8u << 10;

    /// \param body_bytes_max  of a body; more is refused before it is read
    explicit HttpRequestReader(std::size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}

    /// Takes what has come in. \return whether the request is complete, or the answer that refuses
    /// it. What comes behind a complete request is ignored.
    std::expected<bool, HttpAnswer> feed(std::string_view bytes);

    HttpRequest& request() { return request_; }

private:
    std::expected<void, HttpAnswer> read_head(std::string_view head);
    std::expected<void, HttpAnswer> read_request_line(std::string_view line);
    std::expected<void, HttpAnswer> read_field(std::string_view line);

    std::size_t body_bytes_max_;
    std::string head_;
    bool head_done_ = false;
    bool has_length_ = false;
    std::size_t length_ = 0;
    HttpRequest request_;
};

}  // namespace dtrun::stores
