// The parts of a session that stand alone; test_pmi_session.cpp has them together.

#include "tests/support/catch.h"
#include "tests/worker/stores/answers.h"
#include "worker/mpi/pmi_names.h"
#include "worker/mpi/pmi_waits.h"

#include <string>
#include <vector>

namespace dtrun {

using namespace mpi;
using stores::Answers;

TEST_CASE("each thread that waits for an attribute is told, in order, and no other", "[pmi]") {
    PmiWaits waits;
    waits.begin_attribute("a", "1");
    waits.begin_attribute("b", "2");
    waits.begin_attribute("a", "3");
    CHECK(waits.end_attribute("c").empty());
    CHECK(waits.end_attribute("a") == std::vector<std::string>{"1", "3"});
    CHECK(waits.attributes() == 1);
    CHECK(waits.waiting());
    waits.forget_attributes();
    CHECK_FALSE(waits.waiting());
}

TEST_CASE("who is in a barrier is said to wait for that, whatever else", "[pmi]") {
    PmiWaits waits;
    waits.begin_attribute("a", "1");
    waits.begin_ring("2");
    waits.begin_barrier("3");
    CHECK(std::string(waits.waiting()->what).find("barrier") != std::string::npos);
    CHECK(waits.end_barrier() == "3");
    CHECK(std::string(waits.waiting()->what).find("ring") != std::string::npos);
    waits.give_up();
    CHECK_FALSE(waits.in_ring());
    CHECK(std::string(waits.waiting()->what).find("attribute") != std::string::npos);
}

TEST_CASE("a published name that is too long is refused without asking the store", "[pmi]") {
    Answers store;
    int answered = 0;
    std::vector<Status> replies;
    const auto done = [&](const StoreReply& reply) { replies.push_back(reply.status); };
    PmiNames names(store, [&] { ++answered; });
    names.publish("name", std::string(1'025, 'x'), done);
    CHECK(replies == std::vector{Status::refused});
    CHECK(names.unanswered() == 0);
    CHECK(answered == 0);
    names.look_up("name", done);
    CHECK(names.unanswered() == 1);
    store.answer(1, Status::not_found);
    CHECK(replies.back() == Status::not_found);
    CHECK(names.unanswered() == 0);
    CHECK(answered == 1);
}

TEST_CASE("nobody waits for a name when its client is gone", "[pmi]") {
    Answers store;
    {
        PmiNames names(store, [] {});
        names.unpublish("name", [](const StoreReply&) {});
        CHECK(store.waiting.size() == 1);
    }
    CHECK(store.waiting.empty());
}

}  // namespace dtrun
