// Serves Horovod's store for hosts that are all this machine: `horovod_store_here 2 1 4` for three
// hosts with so many ranks. Prints their ports in one line, then answers lines on its standard
// input until that ends:
//
//     waits        who waits, a line "rank milliseconds what" for each, then "end"
//     size         "keys bytes" of the job's store
//     begin        a new generation begins; "begun"
#include "base/log.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/worker/stores/horovod_hosts.h"

#include <fmt/format.h>
#include <unistd.h>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

using namespace dtrun;

namespace {

void say(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
}

void tell_waits(HorovodHosts& hosts) {
    for (std::size_t host = 0; host < hosts.hosts(); ++host) {
        for (const RankWait& wait : hosts.server(host).waits()) {
            const std::string rank = wait.rank == kNoRank ? "?" : fmt::format("{}", wait.rank);
            say(fmt::format("{} {} {}\n", rank, wait.waited_ms, wait.what));
        }
    }
    say("end\n");
}

asio::awaitable<void> serve_input(asio::io_context& io, HorovodHosts& hosts) {
    asio::posix::stream_descriptor input(io, ::dup(STDIN_FILENO));
    std::uint64_t generation = 1;
    std::string text;
    char bytes[256];
    for (;;) {
        const auto buffer = asio::buffer(bytes);
        const auto [error, size] = co_await input.async_read_some(buffer, use_tuple);
        if (error) break;
        text.append(bytes, size);
        for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
            const std::string line = text.substr(0, end);
            text.erase(0, end + 1);
            if (line == "waits") tell_waits(hosts);
            if (line == "size")
                say(fmt::format("{} {}\n", hosts.hub().store().size(),
                                hosts.hub().store().bytes()));
            if (line == "begin") {
                hosts.begin(++generation);
                say("begun\n");
            }
        }
    }
    hosts.stop();
    co_await hosts.join();
    io.stop();
}

}  // namespace

int main(int argc, char** argv) {
    const char* verbose = std::getenv("HOROVOD_STORE_VERBOSE");
    log::init("store", verbose != nullptr ? log::Level::debug : log::Level::normal);
    std::vector<std::uint32_t> sizes;
    for (int i = 1; i < argc; ++i) {
        std::uint32_t size = 0;
        const char* end = argv[i] + std::strlen(argv[i]);
        const auto [rest, error] = std::from_chars(argv[i], end, size);
        if (error != std::errc() || rest != end || size == 0) return 2;
        sizes.push_back(size);
    }
    if (sizes.empty()) return 2;
    asio::io_context io(1);
    HorovodHosts hosts(io, sizes);
    hosts.begin(1);
    std::string ports;
    for (std::size_t host = 0; host < hosts.hosts(); ++host) {
        const auto port = hosts.server(host).listen();
        if (!port) {
            log::error("{}", port.error().message);
            return 1;
        }
        ports += fmt::format("{}{}", host == 0 ? "" : " ", *port);
    }
    say(ports + "\n");
    asio::co_spawn(io, serve_input(io, hosts), [](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
    });
    io.run();
    return hosts.failed() ? 1 : 0;
}
