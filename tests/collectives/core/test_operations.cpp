#include "base/fd.h"
#include "base/strings.h"
#include "collectives/backends/plugin_abi.h"
#include "collectives/operation.h"
#include "tests/support/catch.h"

#include <string>
#include <vector>

using namespace dtrun::collectives;
using Catch::Contains;
using Kind = Operation::Kind;

namespace {

std::string text_in(const std::string& path) {
    const auto text = dtrun::read_file(DTRUN_SOURCE_DIR "/" + path);
    REQUIRE(text.has_value());
    return *text;
}

/// The words of a tuple of Python.
std::string words_of_tuple(const std::string& text, const std::string& name) {
    const std::size_t begin = text.find("\n" + name + " = (");
    REQUIRE(begin != text.npos);
    return text.substr(begin, text.find(')', begin) - begin);
}

}  // namespace

TEST_CASE("C, C++, Python and plug-ins have every operation", "[collectives]") {
    const std::string c = text_in("collectives/include/dtrun_collectives.h");
    const std::string cpp = text_in("collectives/include/dtrun/communicator.h");
    const std::string python = text_in("worker/python/dtrun/collectives.py");
    const std::string plugins = text_in("collectives/backends/plugin_abi.h");
    const std::string manual = text_in("docs/COLLECTIVES.md");
    for (const OperationRow& row : kOperations) {
        std::string name(row.name);
        INFO(name);
        CHECK_THAT(cpp, Contains(" " + name + "("));
        CHECK_THAT(python, Contains("def " + name + "(self"));
        CHECK_THAT(manual, Contains(std::string(row.words)));
        std::string c_name = name;
        if (row.kind == Kind::reduce) c_name = "reduce_to";  // dtrun_reduce is what it reduces by
        if (row.kind == Kind::barrier) c_name = "comm_barrier";
        CHECK_THAT(c, Contains("int dtrun_" + c_name + "(dtrun_comm* comm"));
        for (char& letter : name) letter = static_cast<char>(std::toupper(letter));
        CHECK_THAT(plugins, Contains(fmt::format(" DTRUN_PLUGIN_{} = {}", name,
                                                 static_cast<int>(row.kind))));
    }
}

TEST_CASE("Python has the words for types and reductions, in the order of their values",
          "[collectives]") {
    const std::string python = text_in("worker/python/dtrun/_words.py");
    std::string types = "\nDTYPES = (", reductions = "\nREDUCTIONS = (";
    for (std::size_t type = 0; type < kDTypes; ++type)
        types += fmt::format("{}\"{}\"", type == 0 ? "" : ", ", name_of(static_cast<DType>(type)));
    for (int reduce = 0; reduce <= static_cast<int>(Reduce::adasum); ++reduce)
        reductions +=
            fmt::format("{}\"{}\"", reduce == 0 ? "" : ", ", name_of(static_cast<Reduce>(reduce)));
    CHECK(words_of_tuple(python, "DTYPES") == types);
    std::string moved = "MOVED = {";
    for (const MovedType& type : kMovedTypes)
        moved += fmt::format("\"{}\": {}{}", type.name, type.bytes,
                             &type == std::end(kMovedTypes) - 1 ? "}" : ", ");
    CHECK(python.find(moved) != std::string::npos);
    CHECK(words_of_tuple(python, "REDUCTIONS") == reductions);
}

TEST_CASE("arrays are as long as the row of their operation says", "[collectives]") {
    const std::size_t counts[] = {5, 0, 2};
    const auto lengths = [&](Operation what, std::uint32_t rank) {
        const OperationRow& row = row_of(what.kind);
        return std::pair(elements_of(row.in, what, rank, 3), elements_of(row.out, what, rank, 3));
    };
    using Lengths = std::pair<std::size_t, std::size_t>;
    CHECK(lengths(op::allreduce(nullptr, nullptr, 7, DType::f32, Reduce::sum), 0) == Lengths(7, 7));
    const Operation reduce = op::reduce(nullptr, nullptr, 7, DType::f32, Reduce::sum, 1);
    CHECK(lengths(reduce, 0) == Lengths(7, 0));
    CHECK(lengths(reduce, 1) == Lengths(7, 7));
    CHECK(lengths(op::scatter(nullptr, nullptr, 4, 2), 2) == Lengths(12, 4));
    CHECK(lengths(op::scatter(nullptr, nullptr, 4, 2), 0) == Lengths(0, 4));
    CHECK(lengths(op::allgatherv(nullptr, nullptr, counts), 2) == Lengths(2, 7));
    CHECK(lengths(op::alltoall(nullptr, nullptr, 4), 0) == Lengths(12, 12));
    CHECK(lengths(op::barrier(), 0) == Lengths(0, 0));
}

TEST_CASE("operations that must not be mixed up have different digests", "[collectives]") {
    const std::size_t counts[] = {1, 2, 3}, others[] = {3, 2, 1};
    const Operation all[] = {
        op::allreduce(nullptr, nullptr, 7, DType::f32, Reduce::sum),
        op::allreduce(nullptr, nullptr, 8, DType::f32, Reduce::sum),
        op::allreduce(nullptr, nullptr, 7, DType::i32, Reduce::sum),
        op::allreduce(nullptr, nullptr, 7, DType::f32, Reduce::max),
        op::broadcast(nullptr, 7, 0),
        op::broadcast(nullptr, 7, 1),
        op::gather(nullptr, nullptr, 7, 0),
        op::allgatherv(nullptr, nullptr, counts),
        op::allgatherv(nullptr, nullptr, others),
        op::barrier(),
    };
    for (std::size_t i = 0; i < std::size(all); ++i)
        for (std::size_t j = 0; j < i; ++j) CHECK(digest(all[i]) != digest(all[j]));
    float data = 0;
    CHECK(digest(op::broadcast(&data, 7, 0)) == digest(op::broadcast(nullptr, 7, 0)));
}
