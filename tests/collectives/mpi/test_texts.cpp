#include "collectives/backends/mpi/texts.h"
#include "tests/support/catch.h"

using namespace dtrun::collectives;

TEST_CASE("versions of MPI libraries are said shortly", "[collectives][mpi]") {
    CHECK(mpi_version("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, May 26, 2022") ==
          "Open MPI 4.1.4");
    const char* const mpich =
        "MPICH Version:      4.0.2\nMPICH Release date: Thu Apr  7 12:34:45 CDT 2022\n"
        "MPICH Device:       ch4:ucx\nMPICH configure: ...";
    CHECK(mpi_version(mpich) == "MPICH 4.0.2");
    CHECK(mpich_device(mpich) == "ch4:ucx");
    CHECK(mpi_version("MVAPICH Version:\t3.0") == "MVAPICH 3.0");
    CHECK(mpi_version("Intel(R) MPI Library 2021.10 for Linux* OS\n") ==
          "Intel(R) MPI Library 2021.10 for Linux* OS");
    CHECK(mpi_version("") == "");
    CHECK(mpi_version("Open MPI v5") == "Open MPI 5");
    CHECK(mpich_device("Open MPI v4.1.4") == "");
}
