#include "collectives/backends/mpi/choose_mpi.h"

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <set>

using namespace dtrun;
using namespace dtrun::collectives;
using Catch::Contains;

namespace {

MpiSurroundings with(std::set<MpiLibrary> usable) {
    MpiSurroundings surroundings;
    surroundings.folders = {{"/backends"}};
    surroundings.load = [usable](MpiLibrary library) -> Result<void> {
        if (usable.contains(library)) return {};
        return fail(Errc::not_found, "no {}", title_of(library));
    };
    return surroundings;
}

MpiSurroundings with_both() {
    return with({MpiLibrary::openmpi, MpiLibrary::mpich});
}

}  // namespace

TEST_CASE("a library is known as Open MPI's or MPICH's by its name", "[collectives][mpi]") {
    CHECK(mpi_of_file("/usr/lib/x86_64-linux-gnu/libmpi.so.40") == MpiLibrary::openmpi);
    CHECK(mpi_of_file("libmpi.so.40.30.4") == MpiLibrary::openmpi);
    CHECK(mpi_of_file("/usr/lib/libmpich.so.12") == MpiLibrary::mpich);
    CHECK(mpi_of_file("/opt/intel/oneapi/mpi/lib/libmpi.so.12") == MpiLibrary::mpich);
    CHECK(mpi_of_file("/opt/mvapich/libmpi.so.12.2.2") == MpiLibrary::mpich);
    for (const char* other : {"", "libmpi_cxx.so.40", "libmpichcxx.so.12", "libmpi.so/x.so",
                              "/usr/lib/libmpifort.so.12"})
        CHECK(mpi_of_file(other) == std::nullopt);
}

TEST_CASE("without a reason for another, Open MPI is taken, and MPICH where that is not",
          "[collectives][mpi]") {
    CHECK(choose_mpi(with_both())->variant == "mpi_openmpi");
    CHECK(choose_mpi(with({MpiLibrary::mpich}))->variant == "mpi_mpich");
    const auto none = choose_mpi(with({}));
    REQUIRE_FALSE(none);
    CHECK(none.error().code == Errc::not_found);
    CHECK(none.error().message ==
          "no libdtrun_backend_mpi_openmpi.so or libdtrun_backend_mpi_mpich.so in /backends");
    const TempDir folder;  // they are there, and the MPI is not
    folder.write("libdtrun_backend_mpi_mpich.so", "");
    MpiSurroundings unusable = with({});
    unusable.folders = {{folder.path()}};
    CHECK(choose_mpi(unusable).error().message == "no plug-in for MPI can be loaded: no MPICH");
}

TEST_CASE("the MPI that the process has loaded goes before everything else", "[collectives][mpi]") {
    MpiSurroundings surroundings = with_both();
    surroundings.pmix = true;
    surroundings.loaded = {{MpiLibrary::mpich, "/lib/libmpich.so.12"}};
    CHECK(choose_mpi(surroundings)->variant == "mpi_mpich");
    CHECK(choose_mpi(surroundings)->why == "MPICH: this process has loaded /lib/libmpich.so.12");
    surroundings.asked = "mpich";
    CHECK(choose_mpi(surroundings)->variant == "mpi_mpich");

    surroundings.asked = "openmpi";
    CHECK(choose_mpi(surroundings).error().message ==
          "DTRUN_MPI_LIBRARY asks for Open MPI, but this process has loaded /lib/libmpich.so.12");
    surroundings.loaded.push_back({MpiLibrary::openmpi, "/lib/libmpi.so.40"});
    CHECK_THAT(choose_mpi(surroundings).error().message, Contains("two MPIs"));
    surroundings = with({MpiLibrary::openmpi});
    surroundings.loaded = {{MpiLibrary::mpich, "/lib/libmpich.so.12"}};
    CHECK(choose_mpi(surroundings).error().code == Errc::not_found);
}

TEST_CASE("DTRUN_MPI_LIBRARY decides, and else what the launcher serves", "[collectives][mpi]") {
    MpiSurroundings surroundings = with_both();
    surroundings.pmi = true;
    CHECK(choose_mpi(surroundings)->variant == "mpi_mpich");
    CHECK_THAT(choose_mpi(surroundings)->why, Contains("offers PMI"));
    surroundings.pmix = true;
    CHECK(choose_mpi(surroundings)->variant == "mpi_openmpi");
    surroundings.asked = "mpich";
    CHECK(choose_mpi(surroundings)->why == "MPICH: DTRUN_MPI_LIBRARY asks for it");
    surroundings.asked = "lam";
    CHECK(choose_mpi(surroundings).error().message ==
          "DTRUN_MPI_LIBRARY is \"lam\", not openmpi or mpich");
    surroundings = with({MpiLibrary::mpich});
    surroundings.asked = "openmpi";
    CHECK(choose_mpi(surroundings).error().message ==
          "no backend for Open MPI (DTRUN_MPI_LIBRARY asks for it): no Open MPI");
}

TEST_CASE("this process has loaded no MPI", "[collectives][mpi]") {
    CHECK(loaded_mpi().empty());
    const PluginFolder folder{"/nonexistent"};
    const auto nowhere = choose_mpi({&folder, 1});
    REQUIRE_FALSE(nowhere);
    CHECK(nowhere.error().code == Errc::not_found);
}
