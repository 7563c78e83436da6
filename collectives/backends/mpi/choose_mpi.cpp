#include "collectives/backends/mpi/choose_mpi.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <algorithm>
#include <cstdlib>

namespace dtrun::collectives {
namespace {

constexpr MpiLibrary kLibraries[] = {MpiLibrary::openmpi, MpiLibrary::mpich};

std::optional<MpiLibrary> parse(std::string_view name) {
    for (const MpiLibrary library : kLibraries)
        if (name == name_of(library)) return library;
    return std::nullopt;
}

std::string variant_of(MpiLibrary library) {
    return fmt::format("mpi_{}", name_of(library));
}

std::string file_of(MpiLibrary library) {
    return fmt::format("libdtrun_backend_{}.so", variant_of(library));
}

bool is_set(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != '\0';
}

MpiChoice chosen(MpiLibrary library, const std::string& why) {
    return {variant_of(library), fmt::format("{}: {}", title_of(library), why)};
}

}  // namespace

std::string_view name_of(MpiLibrary library) {
    return library == MpiLibrary::openmpi ? "openmpi" : "mpich";
}

std::string_view title_of(MpiLibrary library) {
    return library == MpiLibrary::openmpi ? "Open MPI" : "MPICH";
}

std::optional<MpiLibrary> mpi_of_file(std::string_view file) {
    file.remove_prefix(file.rfind('/') + 1);  // npos + 1 is 0
    if (file.starts_with("libmpich.so") || file == "libmpi.so.12" ||
        file.starts_with("libmpi.so.12."))
        return MpiLibrary::mpich;
    if (file == "libmpi.so" || file.starts_with("libmpi.so.")) return MpiLibrary::openmpi;
    return std::nullopt;
}

std::vector<LoadedMpi> loaded_mpi() {
    std::vector<LoadedMpi> found;
    const auto look = [](dl_phdr_info* object, std::size_t, void* to) {
        const auto library = mpi_of_file(object->dlpi_name);
        if (library)
            static_cast<std::vector<LoadedMpi>*>(to)->push_back({*library, object->dlpi_name});
        return 0;
    };
    ::dl_iterate_phdr(look, &found);
    return found;
}

Result<MpiChoice> choose_mpi(const MpiSurroundings& surroundings) {
    const auto asked = parse(surroundings.asked);
    if (!surroundings.asked.empty() && !asked)
        return fail(Errc::invalid_input, "DTRUN_MPI_LIBRARY is \"{}\", not openmpi or mpich",
                    surroundings.asked);
    const auto only = [&](MpiLibrary library, const std::string& why) -> Result<MpiChoice> {
        const auto loaded = surroundings.load(library);
        if (loaded) return chosen(library, why);
        return fail(loaded.error(), "no backend for {} ({})", title_of(library), why);
    };
    if (!surroundings.loaded.empty()) {
        const LoadedMpi& first = surroundings.loaded.front();
        for (const LoadedMpi& other : surroundings.loaded)
            if (other.library != first.library)
                return fail(Errc::invalid_input,
                            "this process has loaded two MPIs, {} and {}, which do not go together",
                            first.path, other.path);
        if (asked && *asked != first.library)
            return fail(Errc::invalid_input,
                        "DTRUN_MPI_LIBRARY asks for {}, but this process has loaded {}",
                        title_of(*asked), first.path);
        return only(first.library, fmt::format("this process has loaded {}", first.path));
    }
    if (asked) return only(*asked, "DTRUN_MPI_LIBRARY asks for it");
    if (surroundings.pmix != surroundings.pmi)
        return surroundings.pmix
                   ? only(MpiLibrary::openmpi, "the launcher offers PMIx, and not MPICH's PMI")
                   : only(MpiLibrary::mpich, "the launcher offers PMI, and not Open MPI's PMIx");
    std::string why;
    for (const MpiLibrary library : kLibraries) {
        const auto loaded = surroundings.load(library);
        if (loaded) return chosen(library, "nothing asks for another (DTRUN_MPI_LIBRARY does)");
        if (find_plugins(file_of(library), surroundings.folders).files.empty()) continue;
        why += (why.empty() ? "" : "; ") + loaded.error().message;
    }
    const std::string files[] = {file_of(MpiLibrary::openmpi), file_of(MpiLibrary::mpich)};
    if (why.empty()) return std::unexpected(missing_plugin(files, surroundings.folders));
    return fail(Errc::not_found, "no plug-in for MPI can be loaded: {}", why);
}

Result<MpiChoice> choose_mpi(std::span<const PluginFolder> folders) {
    MpiSurroundings surroundings;
    if (const char* const asked = std::getenv("DTRUN_MPI_LIBRARY")) surroundings.asked = asked;
    surroundings.loaded = loaded_mpi();
    surroundings.pmix = is_set("PMIX_NAMESPACE");
    surroundings.pmi = is_set("PMI_FD") || is_set("PMI_PORT");
    surroundings.folders.assign(folders.begin(), folders.end());
    surroundings.load = [&](MpiLibrary library) -> Result<void> {
        const std::string file = file_of(library);
        const FoundPlugins found = find_plugins(file, folders);
        if (found.files.empty()) return std::unexpected(missing_plugin({&file, 1}, folders));
        for (const std::string& path : found.files)
            if (::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE) != nullptr)
                return {};
        return fail(Errc::not_found, "{}", ::dlerror());
    };
    return choose_mpi(surroundings);
}

}  // namespace dtrun::collectives
