#include "rendezvous/wire/change.h"
#include "tests/support/catch.h"

#include <thread>

namespace dtrun {

TEST_CASE("a board starts without a change, and is read as it was written", "[elastic]") {
    ChangeBoard board;
    CHECK(board.read() == Change{});
    const Change change{7, 8, ChangeReason::left, 1'700'000'000'000, 40};
    board.write(change);
    CHECK(board.read() == change);
    CHECK(board.next() == 8);
}

TEST_CASE("nobody reads half of a change", "[elastic]") {
    ChangeBoard board;
    std::thread writer([&board] {
        for (std::uint64_t i = 1; i <= 20'000; ++i) board.write({i, i, ChangeReason::none, i, i});
    });
    std::uint64_t last = 0;
    bool whole = true;
    while (last < 20'000) {
        const Change change = board.read();
        whole = whole &&
                change == Change{change.next, change.next, ChangeReason::none, change.next,
                                 change.next} &&
                change.next >= last;
        last = change.next;
    }
    writer.join();
    CHECK(whole);
}

}  // namespace dtrun
