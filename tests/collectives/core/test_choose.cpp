#include "collectives/backends/choose.h"

#include "base/fd.h"
#include "collectives/backends/backend_table.h"
#include "collectives/communicator/host_address.h"
#include "tests/support/catch.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace dtrun;
using namespace dtrun::collectives;
using Catch::Contains;

namespace {

const std::vector<std::string> kOrder{"mpi", "gloo"};

Member member(const std::string& host, bool mpi, bool gloo, const std::string& wish = "auto") {
    Member made;
    made.host = host;
    made.address = "10.0.0.1";
    made.wish = wish;
    made.backends = {{"mpi", {mpi, mpi ? "found" : "no libmpi.so.40"}},
                     {"gloo", {gloo, gloo ? "found" : "no libgloo.so.0"}}};
    return made;
}

}  // namespace

TEST_CASE("what a rank tells of itself arrives as it was", "[collectives]") {
    Member made = member("s1", true, false, "gloo");
    made.device = true;
    const auto back = decode_member(encode(made));
    REQUIRE(back.has_value());
    CHECK(back->host == "s1");
    CHECK(back->address == "10.0.0.1");
    CHECK(back->wish == "gloo");
    CHECK(back->device);
    REQUIRE(back->backends.size() == 2);
    CHECK(back->backends[0].second.available);
    CHECK(back->backends[1].second.why == "no libgloo.so.0");
    const std::string bytes = encode(made);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        const auto cut = decode_member(std::string_view(bytes).substr(0, size));
        if (cut) CHECK(cut->backends.size() < 2);
    }
}

TEST_CASE("ranks of installations that do not go together are told on which hosts they are",
          "[collectives]") {
    Member other = member("s2", true, true);
    other.protocol = "3, big endian";
    const auto heard = decode_member(encode(other));
    REQUIRE(heard.has_value());
    const std::vector mixed{member("s1", true, true), *heard};
    const auto refused = choose_backend(mixed, kOrder);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::denied);
    CHECK(refused.error().message ==
          fmt::format("rank 0 on s1 has another version of dtrun than rank 1 on s2: their "
                      "collectives' protocols are {} and 3, big endian; install the same version "
                      "on all hosts",
                      own_protocol()));
    using namespace std::string_literals;
    const auto old = decode_member(
        "s3\0"
        "10.0.0.3\0auto\0\0\0"s);  // before there was a number
    REQUIRE(old.has_value());
    CHECK(old->host == "s3");
    const std::vector older{*old, member("s1", true, true)};
    REQUIRE_FALSE(choose_backend(older, kOrder).has_value());
    CHECK_THAT(choose_backend(older, kOrder).error().message,
               Contains("rank 0 on s3") && Contains("rank 1 on s1"));
}

TEST_CASE("auto is the first backend that every rank has, and says why not another",
          "[collectives]") {
    const std::vector all{member("s1", true, true), member("s2", true, true)};
    CHECK(choose_backend(all, kOrder)->backend == "mpi");
    const std::vector some{member("s1", true, true), member("s2", false, true)};
    const auto choice = choose_backend(some, kOrder);
    REQUIRE(choice.has_value());
    CHECK(choice->backend == "gloo");
    CHECK(choice->why == "the best that every rank has; not mpi (rank 1 on s2: no libmpi.so.40)");
    const std::vector none{member("s1", true, false), member("s2", false, true)};
    const auto nothing = choose_backend(none, kOrder);
    REQUIRE_FALSE(nothing.has_value());
    CHECK(nothing.error().code == Errc::not_found);
    CHECK_THAT(nothing.error().message, Contains("rank 0 on s1: no libgloo.so.0"));
}

TEST_CASE("a backend that is asked for is taken or refused, and all have to ask for the same",
          "[collectives]") {
    const std::vector gloo{member("s1", true, true, "gloo"), member("s2", true, true, "gloo")};
    CHECK(choose_backend(gloo, kOrder)->backend == "gloo");
    const std::vector lacking{member("s1", true, true, "gloo"), member("s2", true, false, "gloo")};
    CHECK(choose_backend(lacking, kOrder).error().message ==
          "the backend \"gloo\" is not there: rank 1 on s2: no libgloo.so.0");
    const std::vector mixed{member("s1", true, true, "gloo"), member("s2", true, true, "mpi")};
    const auto refused = choose_backend(mixed, kOrder);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::denied);
    CHECK(refused.error().message ==
          "rank 0 on s1 asks for the backend \"gloo\", rank 1 on s2 for \"mpi\"");
    std::vector devices{member("s1", true, true), member("s2", true, true)};
    devices[1].device = true;
    CHECK_THAT(choose_backend(devices, kOrder).error().message, Contains("memory of the host"));
    std::vector on_gpus{gloo};
    for (Member& each : on_gpus) each.device = true;
    const auto host_only = choose_backend(on_gpus, std::vector<std::string>{"nccl"});
    REQUIRE_FALSE(host_only.has_value());
    CHECK(host_only.error().code == Errc::invalid_input);
    CHECK_THAT(host_only.error().message, Contains("\"gloo\" takes arrays in memory of the host"));
}

TEST_CASE("auto begins with what survives a change of the membership, if there may be one",
          "[collectives]") {
    using Order = std::vector<std::string>;
    CHECK(backend_order(false, false) == Order{"dtrun", "mpi", "gloo"});
    CHECK(backend_order(false, true) == Order{"dtrun", "gloo", "mpi"});
    CHECK(backend_order(true, false) == Order{"nccl"});
    CHECK(backend_order(true, true) == Order{"nccl"});
    CHECK(backend_order(false, false, true) == Order{"dtrun"});
    CHECK(backend_order(false, true, true) == Order{"dtrun"});
}

TEST_CASE("the manual has every backend, with where its arrays are", "[collectives]") {
    const auto manual = read_file(DTRUN_SOURCE_DIR "/docs/COLLECTIVES.md");
    REQUIRE(manual.has_value());
    for (const BackendRow& row : kBackends)
        CHECK_THAT(*manual, Contains(fmt::format("\n| `{}` | {} memory", row.name,
                                                 row.on_device() ? "GPU" : "host")));
    CHECK(find_backend("gloo")->title == "Gloo");
    CHECK(find_backend("auto") == nullptr);
}

TEST_CASE("dtrun's own backend comes first, unless all hosts have InfiniBand, which MPI uses",
          "[collectives]") {
    const std::vector<std::string> order{"dtrun", "mpi"};
    std::vector members{member("s1", true, true), member("s2", true, true)};
    for (Member& one : members) one.backends.emplace_back("dtrun", Availability{true, ""});
    CHECK(choose_backend(members, order)->backend == "dtrun");
    members[0].fabric = true;
    CHECK(choose_backend(members, order)->backend == "dtrun");
    members[1].fabric = true;
    const auto choice = choose_backend(members, order);
    CHECK(choice->backend == "mpi");
    CHECK_THAT(choice->why, Contains("InfiniBand"));
    members[1].host = "s1";  // what stays on a host needs no network
    CHECK(choose_backend(members, order)->backend == "dtrun");
}

TEST_CASE("a port of InfiniBand counts once it is active", "[collectives]") {
    const std::string folder =
        (std::filesystem::temp_directory_path() / fmt::format("dtrun-fabric-{}", ::getpid()))
            .string();
    const std::string port = folder + "/mlx5_0/ports/1";
    CHECK_FALSE(has_infiniband(folder));
    std::filesystem::create_directories(port);
    std::ofstream(port + "/link_layer") << "InfiniBand\n";
    std::ofstream(port + "/state") << "1: DOWN\n";
    CHECK_FALSE(has_infiniband(folder));
    std::ofstream(port + "/state") << "4: ACTIVE\n";
    CHECK(has_infiniband(folder));
    std::ofstream(port + "/link_layer") << "Ethernet\n";
    CHECK_FALSE(has_infiniband(folder));
    std::filesystem::remove_all(folder);
}
