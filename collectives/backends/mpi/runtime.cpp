#include "collectives/backends/mpi/runtime.h"

#include "base/environment.h"
#include "collectives/backends/mpi/interfaces.h"
#include "collectives/codec/reduce.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>

namespace dtrun::collectives {
namespace {

std::optional<std::string> environment(const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
}

bool has_begun() {
    int begun = 0;
    MPI_Initialized(&begun);
    return begun != 0;
}

template <DType type, Reduce reduce>
void reduce_elements(void* in, void* in_and_out, int* count, MPI_Datatype*) {
    reduce_into(in_and_out, in, in_and_out, static_cast<std::size_t>(*count), type, reduce);
}

/// Makes Open MPI's symbols global: its own plug-ins look for them there, unless they were built
/// otherwise, and what has linked it may have been loaded with RTLD_LOCAL, as plug-ins of ours and
/// modules of Python are.
void show_symbols() {
    Dl_info library{};
    if (kMpiLibrary == MpiLibrary::openmpi &&
        ::dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &library) != 0)
        ::dlopen(library.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

/// How MPI_COMM_WORLD differs from the job, or "".
std::string misfit(const GroupSpec& spec) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1 && spec.size > 1)
        return fmt::format(
            "{} sees 1 rank: the program was not started by dtrun with MPI (see --mpi), or by the "
            "mpirun of another MPI",
            title_of(kMpiLibrary));
    const std::uint32_t last = *std::ranges::max_element(spec.members);
    if (last >= static_cast<std::uint32_t>(size))
        return fmt::format("MPI sees {} ranks, but the group has rank {} of the job", size, last);
    if (spec.members[spec.rank] != static_cast<std::uint32_t>(rank))
        return fmt::format("MPI takes rank {} of the job for its rank {}: use the backend gloo",
                           spec.members[spec.rank], rank);
    return {};
}

}  // namespace

std::unexpected<Error> mpi_failed(int code, const char* function) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    std::string line(text, static_cast<std::size_t>(length));
    std::ranges::replace(line, '\n', ' ');  // MPICH's have several lines
    line.erase(line.find_last_not_of(' ') + 1);
    return fail(Errc::internal, "{}: {}", function, line);
}

MpiRuntime& MpiRuntime::of_process() {
    static MpiRuntime* const runtime =
        new MpiRuntime;  // as long as the process: threads may be in MPI
    return *runtime;
}

bool MpiRuntime::ended() {
    int ended = 0;
    MPI_Finalized(&ended);
    return ended != 0;
}

RankStatus MpiRuntime::status(const GroupSpec& spec) {
    const std::lock_guard lock(mutex_);
    RankStatus mine{std::string(title_of(kMpiLibrary)), has_begun(), {}};
    for (const LoadedMpi& loaded : loaded_mpi())
        if (loaded.library != kMpiLibrary)
            mine.problem =
                fmt::format("it has loaded {} besides {}, and two MPIs do not go together",
                            loaded.path, title_of(kMpiLibrary));
    if (ended()) mine.problem = "it has called MPI_Finalize, and MPI cannot begin again";
    if (!mine.begun || !mine.problem.empty()) return mine;
    if (!generation_) generation_ = spec.generation;
    mine.problem = *generation_ == spec.generation
                       ? misfit(spec)
                       : "MPI has begun before the membership changed, and cannot begin again in "
                         "one process: use the backend gloo";
    return mine;
}

void MpiRuntime::prepare(std::span<const std::string> interfaces) {
    show_symbols();
    if (interfaces.empty()) return;
    for (const Setting& setting :
         interface_settings(kMpiLibrary, interfaces, environment, "/sys/class/net")) {
        set_variable(setting.name, setting.value, IfSet::replace);
        settings_ +=
            fmt::format("{}{}={}", settings_.empty() ? "" : " ", setting.name, setting.value);
    }
}

template <DType type>
int MpiRuntime::create(Operations& operations) {
    MPI_User_function* const functions[] = {
        reduce_elements<type, Reduce::sum>, reduce_elements<type, Reduce::product>,
        reduce_elements<type, Reduce::min>, reduce_elements<type, Reduce::max>};
    for (std::size_t i = 0; i < std::size(functions); ++i) {
        const int code = MPI_Op_create(functions[i], 1, &operations.by_reduce[i]);
        if (code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
}

Result<void> MpiRuntime::begin(std::span<const std::string> interfaces) {
    const std::lock_guard lock(mutex_);
    if (!has_begun()) {
        prepare(interfaces);
        int granted = MPI_THREAD_SINGLE;
        const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted);
        if (code != MPI_SUCCESS) return mpi_failed(code, "MPI_Init_thread");
        ours_ = true;
        pid_ = ::getpid();
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        ::on_exit([](int status, void* self) { static_cast<MpiRuntime*>(self)->end(status); },
                  this);
    }
    if (adopted_) return {};
    MPI_Query_thread(&thread_level_);
    serial_ = thread_level_ != MPI_THREAD_MULTIPLE;
    int code = create<DType::f32>(f32_);
    if (code == MPI_SUCCESS) code = create<DType::f64>(f64_);
    if (code == MPI_SUCCESS) code = create<DType::f16>(f16_);
    if (code == MPI_SUCCESS) code = create<DType::bf16>(bf16_);
    if (code == MPI_SUCCESS) code = create<DType::i8>(i8_);
    if (code == MPI_SUCCESS) code = create<DType::u8>(u8_);
    if (code != MPI_SUCCESS) return mpi_failed(code, "MPI_Op_create");
    adopted_ = true;
    return {};
}

void MpiRuntime::end(int status) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || status != 0 || ::getpid() != pid_ || ended()) return;
    // While another thread is inside MPI, MPI_Finalize might never return.
    if (std::ranges::any_of(activities_, [](const Activity* one) { return one->any(); })) return;
    MPI_Finalize();
}

MpiRuntime::Reduction MpiRuntime::reduction(DType type, Reduce reduce) const {
    static const MPI_Op kOps[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX};
    const std::size_t op = reduce == Reduce::average ? 0 : static_cast<std::size_t>(reduce);
    const bool ordered = reduce == Reduce::min || reduce == Reduce::max;
    switch (type) {
        case DType::f32:
            return {MPI_FLOAT, ordered ? f32_.by_reduce[op] : kOps[op]};
        case DType::f64:
            return {MPI_DOUBLE, ordered ? f64_.by_reduce[op] : kOps[op]};
        case DType::f16:
            return {MPI_UINT16_T, f16_.by_reduce[op]};
        case DType::bf16:
            return {MPI_UINT16_T, bf16_.by_reduce[op]};
        case DType::i8:
            return {MPI_INT8_T, i8_.by_reduce[op]};
        case DType::u8:
            return {MPI_UINT8_T, u8_.by_reduce[op]};
        case DType::i32:
            return {MPI_INT32_T, kOps[op]};
        case DType::i64:
            break;
    }
    return {MPI_INT64_T, kOps[op]};
}

void MpiRuntime::enter(const Activity* activity) {
    const std::lock_guard lock(mutex_);
    activities_.insert(activity);
}

void MpiRuntime::leave(const Activity* activity) {
    const std::lock_guard lock(mutex_);
    activities_.erase(activity);
}

std::string MpiRuntime::threads() const {
    if (!serial_) return "any number at a time (MPI_THREAD_MULTIPLE)";
    const char* const level = thread_level_ == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                              : thread_level_ == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                                                     : "MPI_THREAD_SINGLE";
    return fmt::format(
        "one at a time, for MPI has begun with {}: two groups must not be used at once", level);
}

}  // namespace dtrun::collectives
