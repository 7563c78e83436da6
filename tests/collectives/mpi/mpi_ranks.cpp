/// A rank of mpi_backend_test.py: mpi_ranks TEST PLUGIN [PLUGIN]
///
/// Prints "ok" and more if all went well, else what did not, and ends with 1.
#include "tests/collectives/support/plugin_ranks.h"

#include <dlfcn.h>
#include <cstdlib>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

/// A function of the plug-in's MPI.
template <class Function>
Function function(const char* plugin, const char* name) {
    void* const handle = ::dlopen(plugin, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return reinterpret_cast<Function>(::dlsym(handle, name));
}

/// For a plug-in that takes 3 KiB for more than MPI can count.
CheckOptions beyond_counts(const Rank& rank) {
    CheckOptions options = rank.few();
    options.large_bytes = 20'012;
    options.thorough = true;
    return options;
}

/// The program has called MPI_Init, for one thread only, and calls MPI_Finalize.
Result<void> begun(const Rank& rank, const char* plugin) {
    function<int (*)(int*, char***)>(plugin, "MPI_Init")(nullptr, nullptr);
    auto ok = check(rank, rank.few());
    function<int (*)()>(plugin, "MPI_Finalize")();
    if (!ok) return ok;
    const Availability after = rank.backend().probe();
    if (after.available) return fail(Errc::internal, "there after MPI_Finalize");
    const auto again = rank.connect(rank.spec_of_all("again"));
    if (again) return fail(Errc::internal, "a group after MPI_Finalize");
    std::printf("%s\n%s\n", after.why.c_str(), again.error().message.c_str());
    return {};
}

/// After a change of the membership, as it looks to this process.
Result<void> generations(const Rank& rank) {
    GroupSpec spec = rank.spec_of_all("first");
    spec.generation = 1;
    if (auto ok = checked(rank, spec, rank.few()); !ok) return ok;
    spec.prefix = "second";
    spec.generation = 2;
    return fails(rank, spec);
}

/// Rank 0 sends more than rank 1 takes.
Result<void> truncated(const Rank& rank) {
    const auto group = rank.connect(rank.spec_of_all("all"));
    if (!group) return std::unexpected(group.error());
    std::vector<char> data(100);
    const Send send{1, data.data(), 100};
    const Receive receive{0, data.data(), 10};
    auto messages =
        rank.rank() == 0 ? (*group)->start({&send, 1}, {}) : (*group)->start({}, {&receive, 1});
    if (!messages) return std::unexpected(messages.error());
    const auto waited = (*messages)->wait();
    if (!waited) std::printf("said: %s\n", waited.error().message.c_str());
    return {};
}

/// Rank 1 does what ends a job, while the others wait for it in MPI.
Result<void> leaves(const Rank& rank, const std::string& how) {
    static std::unique_ptr<Group> group;  // ends after MPI
    auto made = rank.connect(rank.spec_of_all("all"));
    if (!made) return std::unexpected(made.error());
    group = std::move(*made);
    if (auto met = group->run(op::barrier()); !met) return met;
    if (how == "exit0") {
        std::puts("ok");
        std::exit(0);
    }
    if (rank.rank() == 1 && how == "exit3") std::exit(3);
    if (rank.rank() == 1 && how == "throw") throw std::runtime_error("thrown by rank 1");
    if (rank.rank() == 1 && how == "abort") group->abort();
    return group->run(op::barrier());
}

/// MPI gives this process a world of its own, where the job has two ranks.
Result<void> alone(const Rank& rank) {
    GroupSpec spec = rank.spec("alone", {0, 1});
    spec.store = nullptr;
    return fails(rank, spec);
}

Result<void> run(const std::string& test, const Rank& rank, const char* plugin) {
    if (test == "check") return check(rank, {});
    if (test == "few") return check(rank, rank.few());
    if (test == "chunks") return check(rank, beyond_counts(rank));
    if (test == "wraps") return wraps(rank);
    if (test == "threads") return threads(rank);
    if (test == "begun") return begun(rank, plugin);
    if (test == "mixed") return fails(rank, rank.spec_of_all("mixed"));
    if (test == "generations") return generations(rank);
    if (test == "interfaces") return interfaces(rank, true);
    if (test == "truncated") return truncated(rank);
    if (test == "alone") return alone(rank);
    return leaves(rank, test);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const char* const number = std::getenv("DTRUN_RANK");
    const bool other = argc > 3 && number != nullptr && std::strcmp(number, "1") == 0;
    const char* const plugin = argv[other ? 3 : 2];
    // MPICH's ranks need milliseconds for each operation when they share a processor.
    const Rank rank(plugin, 0);
    return finish(rank, run(argv[1], rank, plugin));
}
