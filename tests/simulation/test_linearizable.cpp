// The judge of the simulation's histories, judged.

#include "tests/simulation/linearizable.h"
#include "tests/support/catch.h"

namespace dtrun::simulation {
namespace {

using Kind = Operation::Kind;

Deadline at(int second) {
    return Deadline(std::chrono::seconds(second));
}

/// \param to  0: nobody knows
Operation operation(Kind kind, int from, int to, std::string argument,
                    std::optional<std::string> result = std::nullopt) {
    Operation made;
    made.kind = kind;
    made.invoked = at(from);
    if (to != 0) made.returned = at(to);
    made.argument = std::move(argument);
    made.result = std::move(result);
    return made;
}

}  // namespace

TEST_CASE("what overlaps may have happened in either order", "[simulation]") {
    const Operation set_a = operation(Kind::set, 1, 5, "a");
    const Operation set_b = operation(Kind::set, 2, 4, "b");
    CHECK(is_linearizable({set_a, set_b, operation(Kind::get, 6, 7, "", "a")}));
    CHECK(is_linearizable({set_a, set_b, operation(Kind::get, 6, 7, "", "b")}));
    CHECK_FALSE(is_linearizable({set_a, set_b, operation(Kind::get, 6, 7, "")}));
    CHECK_FALSE(is_linearizable(
        {set_a, set_b, operation(Kind::get, 6, 7, "", "b"), operation(Kind::get, 8, 9, "", "a")}));
}

TEST_CASE("a read of what was overwritten before is found", "[simulation]") {
    CHECK_FALSE(is_linearizable({operation(Kind::set, 1, 2, "a"), operation(Kind::set, 3, 4, "b"),
                                 operation(Kind::get, 5, 6, "", "a")}));
}

TEST_CASE("what nobody knows of may have been done at any later time, or never", "[simulation]") {
    const Operation unknown = operation(Kind::set, 1, 0, "a");
    CHECK(is_linearizable({unknown, operation(Kind::get, 2, 3, "")}));
    CHECK(is_linearizable(
        {unknown, operation(Kind::get, 2, 3, ""), operation(Kind::get, 9, 10, "", "a")}));
    CHECK_FALSE(is_linearizable(
        {unknown, operation(Kind::get, 2, 3, "", "a"), operation(Kind::get, 9, 10, "")}));
    CHECK_FALSE(
        is_linearizable({operation(Kind::get, 1, 2, "", "a"), operation(Kind::set, 3, 0, "a")}));
}

TEST_CASE("what is done twice, lost or repeated is found", "[simulation]") {
    const Operation add = operation(Kind::add, 1, 2, "5", "5");
    CHECK(is_linearizable({add, operation(Kind::get, 3, 4, "", "5")}));
    CHECK_FALSE(is_linearizable({add, operation(Kind::get, 3, 4, "", "10")}));
    const Operation push = operation(Kind::push, 1, 2, "x", "1");
    const Operation pop = operation(Kind::pop, 3, 4, "", "x");
    CHECK(is_linearizable({push, pop, operation(Kind::pop, 5, 6, "")}));
    CHECK_FALSE(is_linearizable({push, pop, operation(Kind::pop, 5, 6, "", "x")}));
    CHECK_FALSE(is_linearizable({push, operation(Kind::pop, 5, 6, "")}));
    CHECK(is_linearizable({push, operation(Kind::pop, 3, 0, ""), operation(Kind::pop, 5, 6, "")}));
    const Operation second = operation(Kind::push, 3, 4, "y", "2");
    CHECK_FALSE(is_linearizable({push, second, operation(Kind::pop, 5, 6, "", "y")}));
}

TEST_CASE("a comparison succeeds for one of two", "[simulation]") {
    Operation first = operation(Kind::compare_set, 1, 5, "a", "a");
    first.was_set = true;
    Operation other = operation(Kind::compare_set, 2, 6, "b", "a");
    CHECK(is_linearizable({first, other}));
    other.was_set = true;
    other.result = "b";
    CHECK_FALSE(is_linearizable({first, other}));
}

}  // namespace dtrun::simulation
