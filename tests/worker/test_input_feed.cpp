#include "base/loop/asio.h"
#include "tests/support/catch.h"
#include "worker/ranks/input_feed.h"

#include <unistd.h>
#include <memory>
#include <string>

namespace dtrun {

using namespace ranks;
namespace {

InputFeed::Chunk chunk(std::string text) {
    return std::make_shared<const std::string>(std::move(text));
}

std::string read_all(int fd) {
    std::string text(64, '\0');
    const ssize_t n = ::read(fd, text.data(), text.size());
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
}

}  // namespace

TEST_CASE("a rank is fed what was pushed, in order, and then the end", "[input]") {
    asio::io_context io;
    Pipe pipe = make_pipe().value();
    InputFeed feed(io.get_executor(), std::move(pipe.write));
    feed.push(chunk("one "));
    feed.push(chunk("two"));
    feed.end();
    io.run();
    CHECK(read_all(pipe.read.get()) == "one two");
    CHECK(read_all(pipe.read.get()).empty());
}

TEST_CASE("a feed may be destroyed while a write that has completed is in the executor's queue",
          "[input]") {
    asio::io_context io;
    Pipe pipe = make_pipe().value();
    auto feed = std::make_unique<InputFeed>(io.get_executor(), std::move(pipe.write));
    feed->push(chunk("read by nobody who is left"));
    feed->push(chunk("never written"));
    feed.reset();
    CHECK(io.run() == 1);  // the handler of the first write, which finds nobody
    CHECK(read_all(pipe.read.get()) == "read by nobody who is left");
    CHECK(read_all(pipe.read.get()).empty());
}

}  // namespace dtrun
