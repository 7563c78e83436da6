// What a host tells a doctor.
#include "base/simulated.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/doctor/facts.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

using namespace dtrun;
using namespace dtrun::doctor;

TEST_CASE("Versions of MPI and of NVIDIA's driver are read from what they say", "[doctor]") {
    CHECK(mpi_version("mpirun (Open MPI) 4.1.4\n\nReport bugs to …\n") == "Open MPI 4.1.4");
    CHECK(mpi_version("mpirun (Open MPI) 5.0.3rc1\n") == "Open MPI 5.0.3rc1");
    CHECK(mpi_version("HYDRA build details:\n    Version:                                 4.0.2\n"
                      "    Release Date: …\n") == "MPICH 4.0.2");
    CHECK(mpi_version("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307\n(C)\n") ==
          "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307");
    CHECK(mpi_version("").empty());
    CHECK(is_dtrun("dtrun 0.1.0 (92c0845, Release, x86_64)\n"));
    CHECK_FALSE(is_dtrun("mpirun (Open MPI) 4.1.4\n"));
    CHECK(driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n"
                         "GCC version:  gcc version 12.2.0\n") == "535.104.05");
    CHECK(driver_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  "
                         "Release Build\n") == "570.86.15");
    CHECK(driver_version("").empty());
}

TEST_CASE("This host tells what it has", "[doctor]") {
    const auto facts = gather_facts("/nowhere");
    const auto fact = [&](std::string_view name) {
        const auto found = std::ranges::find(facts, name, &HostFact::name);
        REQUIRE(found != facts.end());
        return found->value;
    };
    CHECK(fact("directory_problem") == "No such file or directory");
    CHECK_FALSE(fact("descriptors").empty());
    CHECK(std::atoll(fact("shm").c_str()) > 0);
    CHECK(fact("python").starts_with("3."));
    CHECK(fact("python_path").starts_with("/"));
    for (const char* const name : {"torch", "mpi", "nccl", "driver", "gpus", "memlock"}) fact(name);
    for (const HostAddress& address : addresses_here()) {
        CHECK(address.address != "127.0.0.1");
        CHECK(address.prefix > 0);
        CHECK(address.mtu > 0);
    }
    const auto off = time_of_date() - since_1970().count();
    CHECK(std::abs(off) < 10'000'000'000);
}

TEST_CASE("The MPI of a host is not dtrun, which may be there as mpirun", "[doctor]") {
    const TempDir directory;
    const auto make = [&](const std::string& folder, const std::string& says) {
        std::filesystem::create_directory(directory.at(folder));
        directory.write(folder + "/mpirun", "#!/bin/sh\necho '" + says + "'\n", 0755);
        return directory.at(folder);
    };
    const std::string before = std::getenv("PATH");
    const auto mpi = [&](const std::string& path) {
        ::setenv("PATH", path.c_str(), 1);
        const auto facts = gather_facts("/");
        ::setenv("PATH", before.c_str(), 1);
        return std::ranges::find(facts, "mpi", &HostFact::name)->value;
    };
    const std::string ours = make("ours", "dtrun 0.1.0 (Release, x86_64)");
    CHECK(mpi(ours) == "");
    CHECK(mpi(ours + ":/nowhere:" + make("theirs", "mpirun (Open MPI) 4.1.4")) == "Open MPI 4.1.4");
}
