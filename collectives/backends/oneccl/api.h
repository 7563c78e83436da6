#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// What we use of oneCCL's C++ interface, ccl::v1, declared anew: the library is found when a
/// program runs, and need not be there when we are built. Names and layouts are the same from
/// 2021.14 to 2022.2.
///
/// Not its C interface, which came later: that waits inside each function, so that nothing could
/// end a call whose peer is gone, and does the messages of a group one after another.
namespace dtrun::collectives::oneccl {

enum class Type : int {
    i8 = 0,
    u8 = 1,
    i32 = 4,
    i64 = 6,
    f16 = 8,
    f32 = 9,
    f64 = 10,
    bf16 = 11,
};

enum class Op : int { sum = 0, product = 1, min = 2, max = 3 };

struct Kvs;        ///< where the ranks of a communicator meet: a server in the process that made it
struct Attribute;  ///< of any kind; only the library's defaults are used

/// What others need to reach a Kvs: text such as "10.0.0.5_4096", filled up with zeros.
struct Address {
    char bytes[256];
};

/// Objects that hide a pointer. They are moved as their originals are, and, like those, returned by
/// way of memory of the caller; whoever has one destroys it by the library's function.
struct Event {
    Event() = default;
    Event(Event&& other) noexcept : hidden(std::exchange(other.hidden, nullptr)) {}
    Event& operator=(Event&& other) noexcept {
        std::swap(hidden, other.hidden);
        return *this;
    }
    ~Event() {}
    void* hidden = nullptr;
};

struct Comm {
    Comm() = default;
    Comm(Comm&& other) noexcept
        : hidden(std::exchange(other.hidden, nullptr)),
          count(std::exchange(other.count, nullptr)) {}
    Comm& operator=(Comm&& other) noexcept {
        std::swap(hidden, other.hidden);
        std::swap(count, other.count);
        return *this;
    }
    ~Comm() {}
    void* hidden = nullptr;
    void* count = nullptr;  ///< of owners
};

/// The library's version; what follows these numbers differs between versions.
struct Version {
    Version() {}
    Version(const Version&) = delete;
    Version& operator=(const Version&) = delete;
    ~Version() {}
    unsigned major = 0;
    unsigned minor = 0;
    unsigned update = 0;
    std::byte rest[500];
};

using Events = std::vector<Event>;

/// Parameters of operations end with a communicator, an attribute, and events to wait for first.
/// Operations return at once.
struct Functions {
    Version (*version)() = nullptr;
    std::shared_ptr<Kvs> (*create_main_kvs)(const Attribute&) = nullptr;
    std::shared_ptr<Kvs> (*create_kvs)(const Address&, const Attribute&) = nullptr;
    Address (*address_of)(const Kvs*) = nullptr;
    Comm (*create_communicator)(int size, int rank, std::shared_ptr<Kvs>,
                                const Attribute&) = nullptr;
    void (*destroy_communicator)(Comm*) = nullptr;
    /// Whether an operation has ended; only this call drives the operations of the process.
    bool (*test)(Event*) = nullptr;
    /// Waits, if the operation has not ended.
    void (*destroy_event)(Event*) = nullptr;

    Event (*allreduce)(const void* in, void* out, std::size_t count, Type, Op, const Comm&,
                       const Attribute&, const Events&) = nullptr;
    Event (*reduce)(const void* in, void* out, std::size_t count, Type, Op, int root, const Comm&,
                    const Attribute&, const Events&) = nullptr;
    Event (*reduce_scatter)(const void* in, void* out, std::size_t count, Type, Op, const Comm&,
                            const Attribute&, const Events&) = nullptr;
    Event (*broadcast)(void* data, std::size_t count, Type, int root, const Comm&, const Attribute&,
                       const Events&) = nullptr;
    Event (*allgatherv)(const void* in, std::size_t count, void* out,
                        const std::vector<std::size_t>& counts, Type, const Comm&, const Attribute&,
                        const Events&) = nullptr;
    Event (*alltoall)(const void* in, void* out, std::size_t count, Type, const Comm&,
                      const Attribute&, const Events&) = nullptr;
    Event (*send)(void* data, std::size_t count, Type, int peer, const Comm&, const Attribute&,
                  const Events&) = nullptr;
    Event (*receive)(void* data, std::size_t count, Type, int peer, const Comm&, const Attribute&,
                     const Events&) = nullptr;
};

/// The library's defaults.
struct Attributes {
    const Attribute* kvs = nullptr;
    const Attribute* comm = nullptr;
    const Attribute* allreduce = nullptr;
    const Attribute* reduce = nullptr;
    const Attribute* reduce_scatter = nullptr;
    const Attribute* broadcast = nullptr;
    const Attribute* allgatherv = nullptr;
    const Attribute* alltoall = nullptr;
    const Attribute* message = nullptr;
};

}  // namespace dtrun::collectives::oneccl
