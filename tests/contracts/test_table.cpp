#include "contracts/table.h"
#include "tests/support/catch.h"

#include <set>

namespace dtrun {

using namespace contracts;
namespace {

using Names = std::vector<std::string>;

Names effective(const Names& named, bool in_slurm = false) {
    const auto names = effective_contracts(named, in_slurm);
    REQUIRE(names.has_value());
    return *names;
}

const Names kDefaults{"dtrun", "torch", "horovod", "deepspeed", "accelerate", "lightning", "mpi"};

}  // namespace

TEST_CASE("ranks get the default contracts where none is named", "[contracts]") {
    CHECK(effective({}) == kDefaults);
}

TEST_CASE("named contracts are added to the default ones, each once", "[contracts]") {
    Names expected = kDefaults;
    expected.emplace_back("tensorflow");
    CHECK(effective({"tensorflow"}) == expected);
    CHECK(effective({"tensorflow,torch", " tensorflow "}) == expected);
}

TEST_CASE("with none there are only dtrun's own variables and those named", "[contracts]") {
    CHECK(effective({"none"}) == Names{"dtrun"});
    CHECK(effective({"none,torch"}) == Names{"dtrun", "torch"});
    CHECK(effective({"horovod", "none"}) == Names{"dtrun", "horovod"});
}

TEST_CASE("a contract brings those along that it is nothing without", "[contracts]") {
    CHECK(effective({"none,accelerate"}) == Names{"dtrun", "torch", "accelerate"});
    CHECK(effective({"none,jax"}) == Names{"dtrun", "jax", "slurm"});
    const Names deepspeed{"dtrun", "torch", "deepspeed", "devices"};
    CHECK(effective({"none", "deepspeed"}) == deepspeed);
}

TEST_CASE("Slurm's variables are default in its allocations only", "[contracts]") {
    Names expected = kDefaults;
    expected.emplace_back("slurm");
    CHECK(effective({}, true) == expected);
    CHECK(effective({"none,plain"}, true) == Names{"dtrun", "plain"});
}

TEST_CASE("a contract that does not exist is named, with those that do", "[contracts]") {
    for (const std::string wrong : {"tensorflw", "torch,", ""}) {
        const auto names = effective_contracts(Names{wrong});
        REQUIRE_FALSE(names.has_value());
        CHECK(names.error().code == Errc::invalid_input);
        CHECK(names.error().message.find("there is no contract \"") == 0);
        CHECK(names.error().message.find("none, dtrun, torch") != std::string::npos);
        CHECK(names.error().message.find("tensorflow") != std::string::npos);
    }
    CHECK(find_contract("none") == nullptr);
}

TEST_CASE("only contracts that list all hosts ask for their ports", "[contracts]") {
    CHECK_FALSE(needs_nodes(effective({})));
    for (const std::string name : {"jax", "tensorflow", "mxnet"})
        CHECK(needs_nodes(effective({name})));
}

TEST_CASE("ps-lite needs a worker, a server and a scheduler", "[contracts]") {
    CHECK(check_contracts(effective({"mxnet"}), 3).has_value());
    CHECK(check_contracts(effective({}), 1).has_value());
    const auto two = check_contracts(effective({"mxnet"}), 2);
    REQUIRE_FALSE(two.has_value());
    CHECK(two.error().message == "contract \"mxnet\" needs at least 3 ranks, not 2");
}

TEST_CASE("the table of contracts says something of everything", "[contracts]") {
    std::set<std::string_view> names;
    for (const Contract& contract : all_contracts()) {
        INFO(contract.name);
        CHECK(names.insert(contract.name).second);
        CHECK(find_contract(contract.name) == &contract);
        CHECK_FALSE(contract.what.empty());
        CHECK_FALSE(contract.why.empty());
        for (const std::string_view added : contract.adds) {
            INFO(added);
            CHECK(find_contract(added) != nullptr);
        }
        std::set<std::string_view> variables;
        for (const ContractVariable& variable : contract.variables) {
            INFO(variable.name);
            CHECK(variables.insert(variable.name).second);
            CHECK_FALSE(variable.what.empty());
        }
    }
}

}  // namespace dtrun
