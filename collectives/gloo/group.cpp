#include "collectives/gloo/group.h"

#include "collectives/codec/reduce.h"
#include "collectives/gloo/store.h"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <unistd.h>

#include <cstring>
#include <exception>
#include <utility>

namespace dtrun::collectives::over_gloo {
namespace {

/// The timeout of what is not limited.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

/// Gloo's error message, without the place in its sources.
std::string reason_of(const std::exception& error) {
    std::string text = error.what();
    if (text.starts_with('['))
        text.erase(0, text.find("] ") == text.npos ? 0 : text.find("] ") + 2);
    return "Gloo: " + text;
}

/// Newer versions of Gloo take a store that they share, older ones a reference.
template <class Context>
void connect_mesh(Context& context, std::shared_ptr<GlooStore> store,
                  std::shared_ptr<::gloo::transport::Device>& device) {
    if constexpr (requires { context.connectFullMesh(*store, device); })
        context.connectFullMesh(*store, device);
    else
        context.connectFullMesh(store, device);
}

/// Calls body with a type that is as large as the elements: Gloo only moves them.
template <class Body>
void with_element(DType type, Body body) {
    switch (bytes_of(type)) {
        case 1:
            return body(std::uint8_t{});
        case 2:
            return body(std::uint16_t{});
        case 4:
            return body(std::uint32_t{});
        default:
            return body(std::uint64_t{});
    }
}

auto function_of(DType type, Reduce reduce) {
    return [type, reduce](void* out, const void* a, const void* b, std::size_t count) {
        reduce_into(out, a, b, count, type, reduce);
    };
}

std::uint8_t* bytes_at(const void* data, std::size_t offset = 0) {
    return static_cast<std::uint8_t*>(const_cast<void*>(data)) + offset;
}

}  // namespace

Result<std::unique_ptr<Group>> connect(const GroupSpec& spec) {
    auto address = over_tcp::choose_address(spec);
    auto store = std::make_shared<GlooStore>(spec);
    if (!address) {
        store->refuse(address.error().message);
        return std::unexpected(address.error());
    }
    try {
        if (auto met = store->meet(); !met) return std::unexpected(met.error());
        std::shared_ptr<::gloo::rendezvous::Context> context;
        if (spec.size > 1) {
            ::gloo::transport::tcp::attr attributes;
            attributes.hostname = address->ip;
            auto device = ::gloo::transport::tcp::CreateDevice(attributes);
            context = std::make_shared<::gloo::rendezvous::Context>(static_cast<int>(spec.rank),
                                                                    static_cast<int>(spec.size));
            context->setTimeout(spec.timeout);
            connect_mesh(*context, store, device);
            context->setTimeout(kForever);
        }
        return std::make_unique<GlooGroup>(spec, std::move(*address), std::move(context));
    } catch (const std::exception& error) {
        return fail(store->error().value_or(Error{Errc::closed, reason_of(error)}), "Gloo");
    }
}

GlooGroup::GlooGroup(const GroupSpec& spec, over_tcp::LocalAddress address,
                     std::shared_ptr<::gloo::Context> context)
    : spec_(spec),
      address_(std::move(address)),
      context_(std::move(context)),
      messages_(spec.size),
      pid_(::getpid()) {}

GlooGroup::~GlooGroup() {
    // A forked child lacks the device's thread, so destructors would wait for ever.
    if (::getpid() != pid_) static_cast<void>(new std::shared_ptr(context_));
}

GroupFacts GlooGroup::facts() const {
    GroupFacts facts;
    facts.version =
        fmt::format("Gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
    facts.transport = address_.interface.empty()
                          ? fmt::format("tcp over {}", address_.ip)
                          : fmt::format("tcp over {} ({})", address_.interface, address_.ip);
    facts.details.emplace_back("GPUDirect RDMA", "no: Gloo's TCP sends memory of the host");
    return facts;
}

Result<void> GlooGroup::run(std::initializer_list<std::uint64_t> what,
                            const std::function<void()>& body) {
    if (error_) return std::unexpected(*error_);
    std::uint64_t call = expected_ + ++sequence_ * 0x9e3779b97f4a7c15ULL;
    for (const std::uint64_t number : what)
        call = (call ^ (call >> 29) ^ number) * 0xbf58476d1ce4e5b9ULL;
    tag_ = static_cast<std::uint32_t>(call >> 32) & 0x7fffffffU;
    try {
        body();
        return {};
    } catch (const std::exception& error) {
        return std::unexpected(failed(error));
    }
}

/// Gloo does not tell which rank was lost.
Error GlooGroup::failed(const std::exception& error) {
    if (error_) return *error_;
    error_ = aborted_ ? Error{Errc::cancelled, "aborted"} : Error{Errc::closed, reason_of(error)};
    if (!aborted_) abort();
    return *error_;
}

void GlooGroup::abort() noexcept {
    aborted_ = true;
    if (!context_) return;
    for (int peer = 0; peer < context_->size; ++peer) {
        try {
            auto& pair = context_->getPair(peer);
            if (pair) pair->close();
        } catch (const std::exception&) {
            // It was being closed.
        }
    }
}

Result<void> GlooGroup::allreduce(const void* in, void* out, std::size_t count, DType type,
                                  Reduce reduce) {
    return run({1, count, static_cast<std::uint64_t>(type), static_cast<std::uint64_t>(reduce)},
               [&] {
                   const std::size_t bytes = count * bytes_of(type);
                   if (!context_ || count == 0) {
                       if (in != out && bytes > 0) std::memcpy(out, in, bytes);
                       return;
                   }
                   with_element(type, [&](auto element) {
                       using T = decltype(element);
                       ::gloo::AllreduceOptions options(context_);
                       if (in != out)
                           options.setInput(static_cast<T*>(const_cast<void*>(in)), count);
                       options.setOutput(static_cast<T*>(out), count);
                       options.setReduceFunction(function_of(type, reduce));
                       options.setTag(tag());
                       ::gloo::allreduce(options);
                   });
                   if (reduce == Reduce::average) divide(out, count, type, spec_.size);
               });
}

Result<void> GlooGroup::reduce(const void* in, void* out, std::size_t count, DType type,
                               Reduce reduce, std::uint32_t root) {
    return run(
        {2, count, static_cast<std::uint64_t>(type), static_cast<std::uint64_t>(reduce), root},
        [&] {
            if (count == 0) return;
            const std::size_t bytes = count * bytes_of(type);
            std::vector<std::byte> result(bytes);  // which Gloo wants on all ranks
            std::memcpy(result.data(), in, bytes);
            if (context_) {
                with_element(type, [&](auto element) {
                    using T = decltype(element);
                    ::gloo::ReduceOptions options(context_);
                    options.setOutput(reinterpret_cast<T*>(result.data()), count);
                    options.setReduceFunction(function_of(type, reduce));
                    options.setRoot(static_cast<int>(root));
                    options.setTag(tag());
                    ::gloo::reduce(options);
                });
            }
            if (spec_.rank != root) return;
            std::memcpy(out, result.data(), bytes);
            if (reduce == Reduce::average) divide(out, count, type, spec_.size);
        });
}

Result<void> GlooGroup::reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                       Reduce reduce) {
    return run(
        {3, count, static_cast<std::uint64_t>(type), static_cast<std::uint64_t>(reduce)}, [&] {
            if (count == 0) return;
            const std::size_t part = count * bytes_of(type);
            std::vector<std::byte> parts(spec_.size * part);
            std::memcpy(parts.data() + spec_.rank * part, bytes_at(in, spec_.rank * part), part);
            if (context_) {
                ::gloo::AlltoallOptions options(context_);
                options.setInput(bytes_at(in), parts.size());
                options.setOutput(bytes_at(parts.data()), parts.size());
                options.setTag(tag());
                ::gloo::alltoall(options);
            }
            for (std::uint32_t rank = 1; rank < spec_.size; ++rank)
                reduce_into(parts.data(), parts.data(), parts.data() + rank * part, count, type,
                            reduce);
            std::memcpy(out, parts.data(), part);
            if (reduce == Reduce::average) divide(out, count, type, spec_.size);
        });
}

Result<void> GlooGroup::broadcast(void* data, std::size_t bytes, std::uint32_t root) {
    return run({4, bytes, root}, [&] {
        if (!context_ || bytes == 0) return;
        ::gloo::BroadcastOptions options(context_);
        options.setOutput(bytes_at(data), bytes);
        options.setRoot(static_cast<int>(root));
        options.setTag(tag());
        ::gloo::broadcast(options);
    });
}

Result<void> GlooGroup::allgather(const void* in, void* out, std::size_t bytes) {
    return run({5, bytes}, [&] {
        if (bytes == 0) return;
        std::uint8_t* const own = bytes_at(out, spec_.rank * bytes);
        if (own != in) std::memcpy(own, in, bytes);
        if (!context_) return;
        ::gloo::AllgatherOptions options(context_);
        options.setOutput(bytes_at(out), spec_.size * bytes);
        options.setTag(tag());
        ::gloo::allgather(options);
    });
}

Result<void> GlooGroup::allgatherv(const void* in, void* out, std::span<const std::size_t> bytes) {
    if (bytes.size() != spec_.size)
        return fail(Errc::invalid_input, "{} sizes for {} ranks", bytes.size(), spec_.size);
    std::uint64_t sizes = 0;
    std::size_t before = 0, all = 0;
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
        sizes = sizes * 0x100000001b3ULL + bytes[rank];
        if (rank < spec_.rank) before += bytes[rank];
        all += bytes[rank];
    }
    return run({6, sizes}, [&] {
        std::uint8_t* const own = bytes_at(out, before);
        if (own != in && bytes[spec_.rank] > 0) std::memcpy(own, in, bytes[spec_.rank]);
        if (!context_ || all == 0) return;
        ::gloo::AllgathervOptions options(context_);
        options.setOutput(bytes_at(out), std::vector<std::size_t>(bytes.begin(), bytes.end()));
        options.setTag(tag());
        ::gloo::allgatherv(options);
    });
}

Result<void> GlooGroup::gather(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    return run({7, bytes, root}, [&] {
        if (bytes == 0) return;
        // The root's own part may lie where it belongs already.
        std::vector<std::uint8_t> own(bytes_at(in), bytes_at(in) + bytes);
        if (!context_) return static_cast<void>(std::memcpy(out, own.data(), bytes));
        ::gloo::GatherOptions options(context_);
        options.setInput(own.data(), bytes);
        if (spec_.rank == root) options.setOutput(bytes_at(out), spec_.size * bytes);
        options.setRoot(static_cast<int>(root));
        options.setTag(tag());
        ::gloo::gather(options);
    });
}

Result<void> GlooGroup::scatter(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    return run({8, bytes, root}, [&] {
        if (bytes == 0) return;
        std::vector<std::uint8_t> own(bytes);
        if (spec_.rank == root) std::memcpy(own.data(), bytes_at(in, root * bytes), bytes);
        if (context_) {
            ::gloo::ScatterOptions options(context_);
            std::vector<std::uint8_t*> parts;
            for (std::uint32_t rank = 0; rank < spec_.size; ++rank)
                parts.push_back(bytes_at(in, rank * bytes));
            if (spec_.rank == root) options.setInputs(parts, bytes);
            options.setOutput(own.data(), bytes);
            options.setRoot(static_cast<int>(root));
            options.setTag(tag());
            ::gloo::scatter(options);
        }
        std::memcpy(out, own.data(), bytes);
    });
}

Result<void> GlooGroup::alltoall(const void* in, void* out, std::size_t bytes) {
    return run({9, bytes}, [&] {
        if (bytes == 0) return;
        if (!context_) return static_cast<void>(std::memcpy(out, in, bytes));
        ::gloo::AlltoallOptions options(context_);
        options.setInput(bytes_at(in), spec_.size * bytes);
        options.setOutput(bytes_at(out), spec_.size * bytes);
        options.setTag(tag());
        ::gloo::alltoall(options);
    });
}

Result<void> GlooGroup::barrier() {
    return run({10}, [&] {
        if (!context_) return;
        ::gloo::BarrierOptions options(context_);
        options.setTag(tag());
        ::gloo::barrier(options);
    });
}

// ---- messages -------------------------------------------------------------------------------

/// Messages that were started together, each with a buffer of its own: Gloo mixes up the senders of several receives
/// of one buffer.
class GlooGroup::Messages final : public Pending {
public:
    explicit Messages(GlooGroup& group) : group_(group) {}
    ~Messages() override { static_cast<void>(wait()); }
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;

    void send(const Send& message, std::uint64_t slot) {
        buffers_.push_back({make(message.data, message.bytes), true});
        buffers_.back().buffer->send(static_cast<int>(message.peer), slot);
    }
    void receive(const Receive& message, std::uint64_t slot) {
        buffers_.push_back({make(message.data, message.bytes), false});
        buffers_.back().buffer->recv(static_cast<int>(message.peer), slot);
    }
    Result<void> wait() override {
        if (std::exchange(done_, true)) return result_;
        try {
            for (auto& [buffer, sends] : buffers_)
                if (!(sends ? buffer->waitSend(kForever) : buffer->waitRecv(kForever)))
                    throw std::runtime_error("it was ended");
        } catch (const std::exception& error) {
            result_ = std::unexpected(group_.failed(error));
        }
        buffers_.clear();
        return result_;
    }

private:
    struct Buffer {
        std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
        bool sends;
    };
    std::unique_ptr<::gloo::transport::UnboundBuffer> make(const void* data, std::size_t bytes) {
        return group_.context_->createUnboundBuffer(const_cast<void*>(data), bytes);
    }

    GlooGroup& group_;
    std::vector<Buffer> buffers_;
    bool done_ = false;
    Result<void> result_;
};

/// Messages that differ in size or call do not match: Gloo ends a process that receives more than it has room for.
std::uint64_t GlooGroup::slot_of(std::uint64_t number, std::size_t bytes) const {
    std::uint64_t slot =
        (expected_ ^ number * 0xc2b2ae3d27d4eb4fULL ^ bytes) * 0x9e3779b97f4a7c15ULL;
    slot ^= slot >> 31;
    return (slot & 0x00ffffffffffffffULL) | 0x7f00000000000000ULL;  // no slot of a collective
}

Result<std::unique_ptr<Pending>> GlooGroup::start(std::span<const Send> sends,
                                                  std::span<const Receive> receives) {
    if (error_) return std::unexpected(*error_);
    const auto other = [this](const auto& message) {
        return message.peer < spec_.size && message.peer != spec_.rank;
    };
    if (!std::ranges::all_of(sends, other) || !std::ranges::all_of(receives, other))
        return fail(Errc::invalid_input, "a message to no other rank of the {}", spec_.size);
    auto messages = std::make_unique<Messages>(*this);
    try {
        for (const Receive& one : receives)
            messages->receive(one, slot_of(messages_[one.peer].received++, one.bytes));
        for (const Send& one : sends)
            messages->send(one, slot_of(messages_[one.peer].sent++, one.bytes));
    } catch (const std::exception& error) {
        return std::unexpected(failed(error));
    }
    return messages;
}

}  // namespace dtrun::collectives::over_gloo
