#include "tests/support/catch.h"
#include "worker/stores/horovod_http.h"

using namespace dtrun;
using namespace dtrun::stores;

namespace {

constexpr std::size_t kBodyMax = 1'000;

/// The refusal's status; 200 where the request is complete, 0 where more is to come.
unsigned status_of(std::string_view bytes) {
    HttpRequestReader reader(kBodyMax);
    const auto complete = reader.feed(bytes);
    if (!complete) return complete.error().status;
    return *complete ? 200 : 0;
}

}  // namespace

TEST_CASE("what Horovod's client sends is a request, however it arrives", "[worker][horovod]") {
    const std::string whole = std::string(
                                  "PUT /global/3 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                                  "Content-Length: 5\r\n\r\n") +
                              std::string("\0\r\n\xff!", 5);
    for (std::size_t step = 1; step <= whole.size(); ++step) {
        HttpRequestReader reader(kBodyMax);
        for (std::size_t at = 0; at < whole.size(); at += step) {
            const auto complete = reader.feed(std::string_view(whole).substr(at, step));
            REQUIRE(complete.has_value());
            CHECK(*complete == (at + step >= whole.size()));
        }
        CHECK(reader.request().method == "PUT");
        CHECK(reader.request().target == "/global/3");
        CHECK(reader.request().body == std::string("\0\r\n\xff!", 5));
    }
    CHECK(status_of("GET /global/0 HTTP/1.1\r\nHost: 10.0.0.1\r\nContent-Length: 0\r\n\r\n") ==
          200);
}

TEST_CASE("what Python's urllib sends is a request", "[worker][horovod]") {
    HttpRequestReader reader(kBodyMax);
    const auto complete = reader.feed(
        "PUT /worker_addresses/s1:0 HTTP/1.1\r\nAccept-Encoding: identity\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 4\r\n"
        "Host: 127.0.0.1:4711\r\nUser-Agent: Python-urllib/3.11\r\nConnection: close\r\n\r\ngASV"
        "and what comes behind it");
    REQUIRE(complete.has_value());
    CHECK(*complete);
    CHECK(reader.request().target == "/worker_addresses/s1:0");
    CHECK(reader.request().body == "gASV");
}

TEST_CASE("requests that are not understood are refused with the status that says why",
          "[worker][horovod]") {
    CHECK(status_of("\r\n\r\n") == 400);
    CHECK(status_of("GET\r\n\r\n") == 400);
    CHECK(status_of("GET /a/b\r\n\r\n") == 400);
    CHECK(status_of("GET /a/b FTP/1.1\r\n\r\n") == 400);
    CHECK(status_of("GET /a/b HTTP/2.0\r\n\r\n") == 505);
    CHECK(status_of("GET a/b HTTP/1.1\r\n\r\n") == 400);
    CHECK(status_of("GET http://h/a/b HTTP/1.1\r\n\r\n") == 400);
    CHECK(status_of("GET /a/\x01 HTTP/1.1\r\n\r\n") == 400);
    CHECK(status_of(" GET /a/b HTTP/1.1\r\n\r\n") == 400);
    CHECK(status_of("G(T /a/b HTTP/1.1\r\n\r\n") == 400);
    CHECK(status_of("GET /a/b HTTP/1.1\r\nno field\r\n\r\n") == 400);
    CHECK(status_of("GET /a/b HTTP/1.1\r\n : value\r\n\r\n") == 400);
    CHECK(status_of("GET /a/b HTTP/1.1\r\nName : value\r\n\r\n") == 400);
    CHECK(status_of("GET /a/b HTTP/1.1\r\nA: b\r\n folded\r\n\r\n") == 400);
    CHECK(status_of("PUT /a/b HTTP/1.1\r\n\r\n") == 411);
    CHECK(status_of("PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n") == 411);
    CHECK(status_of("PUT /a/b HTTP/1.1\r\nContent-Length: 3\r\nexpect: 100-continue\r\n\r\n") ==
          417);
}

TEST_CASE("a length is a number, once, and within the limit", "[worker][horovod]") {
    const auto with = [](std::string fields) {
        return status_of("PUT /a/b HTTP/1.1\r\n" + fields + "\r\n");
    };
    CHECK(with("Content-Length: 1000\r\n") == 0);
    CHECK(with("content-LENGTH:\t7 \r\n") == 0);
    CHECK(with("Content-Length: 1001\r\n") == 413);
    CHECK(with("Content-Length: 99999999999999999999999999\r\n") == 413);
    for (const char* bad : {"", "-1", "+1", "1x", "0x1", "1 2", "1,1"})
        CHECK(with("Content-Length: " + std::string(bad) + "\r\n") == 400);
    CHECK(with("Content-Length: 1\r\nContent-Length: 2\r\n") == 400);
    CHECK(with("Content-Length: 1\r\nContent-Length: 1\r\n") == 0);
}

TEST_CASE("a head has a limit, also one that never ends", "[worker][horovod]") {
    const std::string line = "GET /a/b HTTP/1.1\r\nA: ";
    const std::size_t room = HttpRequestReader::kHeadBytesMax - line.size();
    CHECK(status_of(line + std::string(room, 'x')) == 0);
    CHECK(status_of(line + std::string(room + 1, 'x')) == 431);
    CHECK(status_of(line + std::string(room - 4, 'x') + "\r\n\r\n") == 200);
    HttpRequestReader reader(kBodyMax);
    std::size_t fed = 0;
    while (reader.feed("xxxxxxx").has_value()) REQUIRE(++fed < 10'000);
    CHECK(fed == HttpRequestReader::kHeadBytesMax / 7);
}

TEST_CASE("an answer names its length in the one spelling that Horovod's client knows",
          "[worker][horovod]") {
    CHECK(http_answer_head(http_answer(200, "12345")) ==
          "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n");
    CHECK(http_answer_head({404}) ==
          "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}
