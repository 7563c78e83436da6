#include "worker/stores/horovod_http.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>

namespace dtrun::stores {
namespace {

std::string_view phrase(unsigned status) {
    switch (status) {
        case 200:
            return "OK";
        case 400:
            return "Bad Request";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 408:
            return "Request Timeout";
        case 411:
            return "Length Required";
        case 413:
            return "Content Too Large";
        case 417:
            return "Expectation Failed";
        case 431:
            return "Request Header Fields Too Large";
        case 503:
            return "Service Unavailable";
        case 505:
            return "HTTP Version Not Supported";
        default:
            return "Internal Server Error";
    }
}

std::unexpected<HttpAnswer> refuse(unsigned status, std::string why) {
    return std::unexpected(http_answer(status, std::move(why)));
}

/// RFC 9110's tchar.
bool is_token(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) !=
                   std::string_view::npos;
    });
}

bool same_name(std::string_view a, std::string_view lower) {
    return std::ranges::equal(a, lower, [](char x, char y) {
        return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y;
    });
}

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

HttpAnswer http_answer(unsigned status, std::string body) {
    return {status, std::make_shared<const std::string>(std::move(body))};
}

std::string http_answer_head(const HttpAnswer& answer) {
    return fmt::format("HTTP/1.1 {} {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                       answer.status, phrase(answer.status), answer.bytes().size());
}

std::expected<bool, HttpAnswer> HttpRequestReader::feed(std::string_view bytes) {
    if (!head_done_) {
        const std::size_t seen = head_.size();
        // One byte more than allowed shows that it is too long.
        const std::string_view taken = bytes.substr(0, kHeadBytesMax + 1 - seen);
        head_ += taken;
        const auto end = head_.find("\r\n\r\n", seen < 3 ? 0 : seen - 3);
        if (end == std::string::npos) {
            if (head_.size() <= kHeadBytesMax) return false;
            return refuse(431,
                          fmt::format("a request's head has more than {} bytes\n", kHeadBytesMax));
        }
        bytes.remove_prefix(end + 4 - seen);
        head_done_ = true;
        if (auto read = read_head(std::string_view(head_).substr(0, end)); !read)
            return std::unexpected(std::move(read.error()));
    }
    request_.body += bytes.substr(0, length_ - request_.body.size());
    return request_.body.size() == length_;
}

std::expected<void, HttpAnswer> HttpRequestReader::read_head(std::string_view head) {
    auto end = head.find("\r\n");
    if (auto read = read_request_line(head.substr(0, end)); !read) return read;
    while (end != std::string_view::npos) {
        head.remove_prefix(end + 2);
        end = head.find("\r\n");
        if (auto read = read_field(head.substr(0, end)); !read) return read;
    }
    if (request_.method == "PUT" && !has_length_)
        return refuse(411, "a PUT needs a Content-Length\n");
    return {};
}

std::expected<void, HttpAnswer> HttpRequestReader::read_request_line(std::string_view line) {
    const auto first = line.find(' ');
    const auto second = first == std::string_view::npos ? first : line.find(' ', first + 1);
    if (second == std::string_view::npos) return refuse(400, "no request line\n");
    const std::string_view target = line.substr(first + 1, second - first - 1);
    const std::string_view version = line.substr(second + 1);
    if (!is_token(line.substr(0, first))) return refuse(400, "no method\n");
    if (target.empty() || target[0] != '/' ||
        std::ranges::any_of(target, [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
        return refuse(400, "the target is no path\n");
    if (!version.starts_with("HTTP/")) return refuse(400, "no HTTP version\n");
    if (version != "HTTP/1.1" && version != "HTTP/1.0") return refuse(505, "HTTP/1.1 only\n");
    request_.method = line.substr(0, first);
    request_.target = target;
    return {};
}

std::expected<void, HttpAnswer> HttpRequestReader::read_field(std::string_view line) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
        return refuse(400, "a header field without a name\n");
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (same_name(name, "transfer-encoding"))
        return refuse(411, "a body needs a Content-Length; Transfer-Encoding is not known here\n");
    if (same_name(name, "expect")) return refuse(417, "Expect is not known here\n");
    if (!same_name(name, "content-length")) return {};
    std::size_t length = 0;
    const auto [rest, error] = std::from_chars(value.begin(), value.end(), length);
    if (value.empty() || rest != value.end() ||
        (error != std::errc() && error != std::errc::result_out_of_range) ||
        (has_length_ && length != length_))
        return refuse(400, "a Content-Length that is no number\n");
    if (error != std::errc() || length > body_bytes_max_)
        return refuse(413, fmt::format("a value has at most {} bytes\n", body_bytes_max_));
    has_length_ = true;
    length_ = length;
    return {};
}

}  // namespace dtrun::stores
