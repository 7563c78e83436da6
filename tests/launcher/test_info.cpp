// What `dtrun info` and `dtrun --check-build` make of what they are told.
#include "launcher/commands/check_build.h"
#include "launcher/commands/info_command.h"
#include "tests/support/catch.h"

#include <dtrun_version.h>

using namespace dtrun;
using namespace dtrun::commands;
using Catch::Contains;
using Catch::StartsWith;

namespace {

const std::vector<doctor::BackendHere> kBackends{
    {"dtrun", "dtrun", "0.1.0", ""},
    {"mpi", "MPI", "Open MPI 4.1.4", "/lib/dtrun/backends/libdtrun_backend_mpi_openmpi.so"},
    {"gloo", "Gloo", "0.5", ""},
    {"nccl", "NCCL", "", "/lib/dtrun/backends/libdtrun_backend_nccl.so"},
    {"pmix", "PMIx", "4.2.2", ""}};

}  // namespace

TEST_CASE("what is there is told under horovodrun's headings", "[launcher][info]") {
    const std::string text = check_build_text(kBackends, "torch 1.13.1\ntensorflow 2.15.0\n");
    CHECK_THAT(text, StartsWith("dtrun v" DTRUN_VERSION ":\n\nAvailable Frameworks:\n"
                                "    [X] PyTorch        1.13.1\n"
                                "    [ ] TensorFlow     2.15.0, which needs Horovod itself\n"
                                "    [ ] MXNet\n\n"));
    CHECK_THAT(text, Contains("Available Controllers:\n"
                              "    [X] MPI            Open MPI 4.1.4, started by libpmix 4.2.2\n"
                              "    [X] Gloo           dtrun serves its store\n\n"));
    CHECK_THAT(text, Contains("Available Tensor Operations:\n"
                              "    [X] dtrun          0.1.0\n"
                              "    [X] MPI            Open MPI 4.1.4\n"
                              "    [ ] Gloo           0.5: no plug-in of dtrun for it here\n"
                              "    [ ] NCCL           no such library here\n\n"));
    CHECK_THAT(text, Contains("Horovod is not installed; --horovod-shim"));
    CHECK_THAT(check_build_text(kBackends, "horovod 0.28.1\ntensorflow 2.15.0\n"),
               Contains("[ ] PyTorch\n") && Contains("[X] TensorFlow     2.15.0\n"));
}

TEST_CASE("a machine without MPI, or a dtrun without its collectives, is told as such",
          "[launcher][info]") {
    const auto text = [](const std::string& mpi, const std::string& pmix) {
        return check_build_text(
            std::vector<doctor::BackendHere>{{"mpi", "MPI", mpi, ""}, {"pmix", "PMIx", pmix, ""}},
            "");
    };
    CHECK_THAT(text("", "4.2.2"), Contains("[ ] MPI            no MPI library here\n"));
    CHECK_THAT(text("Open MPI 4.1.4", ""),
               Contains("[X] MPI            Open MPI 4.1.4, for which libpmix is missing\n"));
    CHECK_THAT(text("MPICH 4.0.2", ""),
               Contains("[X] MPI            MPICH 4.0.2, started by PMI\n"));
    CHECK_THAT(check_build_text(fail(Errc::not_found, "no dtrun-bench-rank at /a or /b"), ""),
               Contains("Available Tensor Operations:\n    no dtrun-bench-rank at /a or /b\n"));
}

TEST_CASE("neither home nor name of a user stands in a report", "[launcher][info]") {
    const auto said = [](std::string_view text) { return without_user(text, "/home/ann", "ann"); };
    CHECK(said("/home/ann/bin/dtrun, /home/annabel/x") == "~/bin/dtrun, /home/annabel/x");
    CHECK(said("A=/scratch/ann:/home/ann B=ann@s1 C=channel") ==
          "A=/scratch/USER:~ B=USER@s1 C=channel");
    CHECK(without_user("/root/bin/dtrun of root", "/root", "root") == "~/bin/dtrun of root");
    CHECK(without_user("/bin/dtrun", "/", "") == "/bin/dtrun");
    CHECK(without_user("/home/ann/x", "/home/ann/", "ann") == "~/x");
}
