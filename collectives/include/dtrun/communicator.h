/// Collective operations for C++17: <dtrun_collectives.h> with types, exceptions and destructors.
/// Header only; link with dtrun::collectives (CMake) or `pkg-config --libs dtrun-collectives`.
///
///     dtrun::Worker worker;
///     dtrun::Communicator comm(worker);
///     comm.allreduce(gradients.data(), gradients.size(), dtrun::Reduce::average);
#pragma once

#include <dtrun/worker.h>
#include <dtrun_collectives.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {
inline namespace v0 {

enum class Reduce {
    sum = DTRUN_SUM,
    product = DTRUN_PRODUCT,
    min = DTRUN_MIN,
    max = DTRUN_MAX,
    average = DTRUN_AVERAGE,
    adasum = DTRUN_ADASUM
};

enum class Format {
    none = DTRUN_UNCOMPRESSED,
    f16 = DTRUN_COMPRESS_F16,
    bf16 = DTRUN_COMPRESS_BF16,
    e4m3 = DTRUN_COMPRESS_E4M3,
    e5m2 = DTRUN_COMPRESS_E5M2,
    int8 = DTRUN_COMPRESS_INT8,
    e4m3_unscaled = DTRUN_COMPRESS_E4M3_UNSCALED,
    e5m2_unscaled = DTRUN_COMPRESS_E5M2_UNSCALED
};

/// How f32 travel; see dtrun_compression.
struct Compression {
    Format format = Format::none;
    bool stochastic = false;
    float* error = nullptr;  ///< for error feedback: as many floats as the array has, 0 at first
    bool always = false;     ///< also on one host, and for few values: to study a format
};

/// IEEE binary16 and the upper half of a float, as bits.
struct float16 {
    std::uint16_t bits;
};
struct bfloat16 {
    std::uint16_t bits;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
    static constexpr int value = DTRUN_F32;
};
template <>
struct DTypeOf<double> {
    static constexpr int value = DTRUN_F64;
};
template <>
struct DTypeOf<float16> {
    static constexpr int value = DTRUN_F16;
};
template <>
struct DTypeOf<bfloat16> {
    static constexpr int value = DTRUN_BF16;
};
template <>
struct DTypeOf<std::int8_t> {
    static constexpr int value = DTRUN_I8;
};
template <>
struct DTypeOf<std::uint8_t> {
    static constexpr int value = DTRUN_U8;
};
template <>
struct DTypeOf<std::int32_t> {
    static constexpr int value = DTRUN_I32;
};
template <>
struct DTypeOf<std::int64_t> {
    static constexpr int value = DTRUN_I64;
};

/// An asynchronous operation. The destructor waits for it and drops its error.
class Future {
public:
    explicit Future(dtrun_request* request) : request_(request) {}

    /// Returns once it is done. \throws Error  as the operation
    void get() { finish(DTRUN_FOREVER); }
    /// \return whether it is done; then there is nothing to get() any more. \throws Error
    bool wait_for(std::chrono::milliseconds span) {
        return finish(span.count() > 0 ? span.count() : 0);
    }

private:
    struct Wait {
        void operator()(dtrun_request* request) const noexcept {
            dtrun_request_wait(request, DTRUN_FOREVER, nullptr);
        }
    };
    bool finish(std::int64_t ms) {
        if (request_ == nullptr) return true;
        int done = 0;
        const int code = dtrun_request_wait(request_.get(), ms, &done);
        if (done == 0) return false;
        static_cast<void>(request_.release());
        if (code != DTRUN_OK) throw Error(code, dtrun_comm_error_text());
        return true;
    }
    std::unique_ptr<dtrun_request, Wait> request_;
};

struct CommunicatorOptions {
    std::string backend = "auto";  ///< or a backend's name, see docs/COLLECTIVES.md
    std::chrono::milliseconds timeout{300'000};
    std::chrono::milliseconds operation_timeout{0};  ///< 0: none
    std::string interfaces;                          ///< or an address, separated by commas
    bool device_memory = false;
    int device = -1;  ///< number of the GPU; -1: as <dtrun_collectives.h> says
    /// Ranks of the job, in the order that they have in it; empty: all of them.
    std::vector<std::uint32_t> ranks;
    std::string name;  ///< of a communicator of some ranks, that no other one of the job ever has
    /// After which ranks that do not come are told; 0: never; nothing: as <dtrun_collectives.h> says.
    std::optional<std::chrono::milliseconds> stall{};
};

/// A group of ranks that communicate; <dtrun_collectives.h> says more about each function. `count`
/// is a number of elements.
///
/// It is as large as <dtrun_collectives.h>: it has a function for each operation there, and one that
/// starts it where that may be left to run, and nothing of its own but the handle; so nothing else
/// belongs here.
/// \throws Error  everywhere: PEER_LOST (names the rank), CANCELLED, TIMED_OUT, INVALID, INTERNAL,
///                FORKED; when it is made also NOT_FOUND and REFUSED
class Communicator {
public:
    /// All ranks of the worker call it, or those of the options. The worker outlives it.
    explicit Communicator(Worker& worker, const CommunicatorOptions& options = {}) {
        dtrun_comm_options given{};
        given.size = sizeof given;
        given.backend = options.backend.c_str();
        // A time that has passed is over; 0 would be the default, less than it for ever.
        given.timeout_ms = std::max<std::int64_t>(options.timeout.count(), 1);
        given.operation_timeout_ms = options.operation_timeout.count();
        given.interfaces = options.interfaces.empty() ? nullptr : options.interfaces.c_str();
        given.device_memory = options.device_memory ? 1 : 0;
        given.device_plus_one = options.device + 1;
        given.ranks = options.ranks.empty() ? nullptr : options.ranks.data();
        given.rank_count = options.ranks.size();
        given.name = options.name.c_str();
        if (options.stall)
            given.stall_ms = options.stall->count() > 0 ? options.stall->count() : -1;
        dtrun_comm* comm = nullptr;
        check(dtrun_comm_create(worker.handle(), &given, &comm));
        comm_.reset(comm);
    }

    /// Ranks of the same colour, ordered by key; nothing with a negative colour.
    std::optional<Communicator> split(std::int32_t colour, std::int32_t key = 0) {
        dtrun_comm* comm = nullptr;
        check(dtrun_comm_split(handle(), colour, key, &comm));
        if (comm == nullptr) return std::nullopt;
        return Communicator(comm);
    }
    Communicator split_by_host() {
        dtrun_comm* comm = nullptr;
        check(dtrun_comm_split_by_host(handle(), &comm));
        return Communicator(comm);
    }
    /// Of one operation, from now on; 0: none. From any thread.
    void set_operation_timeout(std::chrono::milliseconds timeout) {
        check(dtrun_comm_set_operation_timeout(handle(), timeout.count()));
    }
    /// In which stream of the GPU this thread works on its arrays. \param stream  a cudaStream_t
    void set_stream(void* stream) { check(dtrun_comm_set_stream(handle(), stream)); }
    void abort(const std::string& why) noexcept { dtrun_comm_abort(handle(), why.c_str()); }

    std::uint32_t rank() const { return dtrun_comm_rank(handle()); }
    std::uint32_t size() const { return dtrun_comm_size(handle()); }
    std::string_view backend() const { return dtrun_comm_backend(handle()); }
    std::string_view why() const { return dtrun_comm_why(handle()); }
    std::string_view facts() const { return dtrun_comm_facts(handle()); }

    template <class T>
    void allreduce(const T* in, T* out, std::size_t count, Reduce reduce = Reduce::sum) {
        check(dtrun_allreduce(handle(), in, out, count, DTypeOf<T>::value, code(reduce), nullptr));
    }
    template <class T>
    void allreduce(T* data, std::size_t count, Reduce reduce = Reduce::sum) {
        allreduce(data, data, count, reduce);
    }
    /// \param compression  of f32, float16 or bfloat16
    template <class T>
    void allreduce(const T* in, T* out, std::size_t count, Reduce reduce,
                   const Compression& compression) {
        const dtrun_compression given = given_of(compression);
        check(dtrun_allreduce(handle(), in, out, count, DTypeOf<T>::value, code(reduce), &given));
    }
    template <class T>
    Future start_allreduce(const T* in, T* out, std::size_t count, Reduce reduce = Reduce::sum) {
        dtrun_request* request = nullptr;
        check(dtrun_allreduce_start(handle(), in, out, count, DTypeOf<T>::value, code(reduce),
                                    nullptr, &request));
        return Future(request);
    }
    template <class T>
    Future start_allreduce(const T* in, T* out, std::size_t count, Reduce reduce,
                           const Compression& compression) {
        const dtrun_compression given = given_of(compression);
        dtrun_request* request = nullptr;
        check(dtrun_allreduce_start(handle(), in, out, count, DTypeOf<T>::value, code(reduce),
                                    &given, &request));
        return Future(request);
    }

    template <class T>
    struct Array {
        T* data;
        std::size_t count;
        float* error = nullptr;  ///< for error feedback
    };
    /// Reduces all arrays as one, in place. Each array has its own `error`; compression.error is
    /// ignored.
    template <class T>
    void allreduce_many(const std::vector<Array<T>>& arrays, Reduce reduce = Reduce::sum,
                        const Compression& compression = {}) {
        std::vector<void*> data;
        std::vector<std::size_t> counts;
        std::vector<float*> errors;
        for (const Array<T>& array : arrays) {
            data.push_back(array.data);
            counts.push_back(array.count);
            errors.push_back(array.error);
        }
        const dtrun_compression given = given_of(compression);
        check(dtrun_allreduce_many(handle(), data.data(), counts.data(), arrays.size(),
                                   DTypeOf<T>::value, code(reduce), &given, errors.data()));
    }

    /// \param out  of the root
    template <class T>
    void reduce(const T* in, T* out, std::size_t count, Reduce reduce, std::uint32_t root) {
        check(dtrun_reduce_to(handle(), in, out, count, DTypeOf<T>::value, code(reduce), root));
    }
    /// \param count  of each rank's part
    template <class T>
    void reduce_scatter(const T* in, T* out, std::size_t count, Reduce reduce = Reduce::sum) {
        check(dtrun_reduce_scatter(handle(), in, out, count, DTypeOf<T>::value, code(reduce)));
    }
    /// \param compression  of f32, float16 or bfloat16; its error has size() * count floats
    template <class T>
    void reduce_scatter(const T* in, T* out, std::size_t count, Reduce reduce,
                        const Compression& compression) {
        const dtrun_compression given = given_of(compression);
        check(dtrun_reduce_scatter_compressed(handle(), in, out, count, DTypeOf<T>::value,
                                              code(reduce), &given));
    }
    template <class T>
    Future start_reduce_scatter(const T* in, T* out, std::size_t count,
                                Reduce reduce = Reduce::sum) {
        dtrun_request* request = nullptr;
        check(dtrun_reduce_scatter_start(handle(), in, out, count, DTypeOf<T>::value, code(reduce),
                                         &request));
        return Future(request);
    }
    template <class T>
    void broadcast(T* data, std::size_t count, std::uint32_t root) {
        check(dtrun_broadcast(handle(), data, count, DTypeOf<T>::value, root));
    }
    template <class T>
    Future start_broadcast(T* data, std::size_t count, std::uint32_t root) {
        dtrun_request* request = nullptr;
        check(dtrun_broadcast_start(handle(), data, count, DTypeOf<T>::value, root, &request));
        return Future(request);
    }
    /// \param count  of each rank's part
    template <class T>
    void allgather(const T* in, T* out, std::size_t count) {
        check(dtrun_allgather(handle(), in, out, count, DTypeOf<T>::value));
    }
    /// \param compression  of f32, float16 or bfloat16; its error has `count` floats
    template <class T>
    void allgather(const T* in, T* out, std::size_t count, const Compression& compression) {
        const dtrun_compression given = given_of(compression);
        check(dtrun_allgather_compressed(handle(), in, out, count, DTypeOf<T>::value, &given));
    }
    template <class T>
    Future start_allgather(const T* in, T* out, std::size_t count) {
        dtrun_request* request = nullptr;
        check(dtrun_allgather_start(handle(), in, out, count, DTypeOf<T>::value, &request));
        return Future(request);
    }
    /// \param counts  of each rank's part
    template <class T>
    void allgatherv(const T* in, T* out, const std::vector<std::size_t>& counts) {
        check(dtrun_allgatherv(handle(), in, out, counts.data(), DTypeOf<T>::value));
    }
    template <class T>
    void gather(const T* in, T* out, std::size_t count, std::uint32_t root) {
        check(dtrun_gather(handle(), in, out, count, DTypeOf<T>::value, root));
    }
    template <class T>
    void scatter(const T* in, T* out, std::size_t count, std::uint32_t root) {
        check(dtrun_scatter(handle(), in, out, count, DTypeOf<T>::value, root));
    }
    template <class T>
    void alltoall(const T* in, T* out, std::size_t count) {
        check(dtrun_alltoall(handle(), in, out, count, DTypeOf<T>::value));
    }
    template <class T>
    void send(const T* data, std::size_t count, std::uint32_t to) {
        check(dtrun_send(handle(), data, count, DTypeOf<T>::value, to));
    }
    template <class T>
    void recv(T* data, std::size_t count, std::uint32_t from) {
        check(dtrun_recv(handle(), data, count, DTypeOf<T>::value, from));
    }
    /// Sends and receives at once.
    template <class T>
    void sendrecv(const T* out, std::size_t out_count, std::uint32_t to, T* in,
                  std::size_t in_count, std::uint32_t from) {
        check(dtrun_sendrecv(handle(), out, out_count, to, in, in_count, from, DTypeOf<T>::value));
    }
    void barrier() { check(dtrun_comm_barrier(handle())); }

    /// The handle, for functions of <dtrun_collectives.h>.
    dtrun_comm* handle() const noexcept { return comm_.get(); }

private:
    struct Free {
        void operator()(dtrun_comm* comm) const noexcept { dtrun_comm_free(comm); }
    };
    explicit Communicator(dtrun_comm* comm) : comm_(comm) {}

    static int code(Reduce reduce) { return static_cast<int>(reduce); }
    static dtrun_compression given_of(const Compression& compression) {
        dtrun_compression given{};
        given.size = sizeof given;
        given.format = static_cast<int>(compression.format);
        given.stochastic = compression.stochastic ? 1 : 0;
        given.error = compression.error;
        given.policy = compression.always ? 1 : 0;
        return given;
    }
    static void check(int code) {
        if (code != DTRUN_OK) throw Error(code, dtrun_comm_error_text());
    }

    std::unique_ptr<dtrun_comm, Free> comm_;
};

}  // namespace v0
}  // namespace dtrun
