#include "collectives/backends/gloo/group.h"

#include "collectives/backends/gloo/store.h"
#include "collectives/codec/reduce.h"

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

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
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
    : GroupOfOperations(spec.rank, spec.size),
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

Result<void> GlooGroup::run(const Operation& what) {
    if (error_) return std::unexpected(*error_);
    const std::uint64_t call =
        mixed(digest(what) + expected_ + ++sequence_ * 0x9e3779b97f4a7c15ULL);
    tag_ = static_cast<std::uint32_t>(call >> 32) & 0x7fffffffU;
    try {
        return GroupOfOperations::run(what);
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

Result<void> GlooGroup::allreduce(const Operation& what) {
    if (!context_ || what.count == 0) {
        if (what.in != what.out && what.bytes() > 0) std::memcpy(what.out, what.in, what.bytes());
        return {};
    }
    with_element(what.type, [&](auto element) {
        using T = decltype(element);
        ::gloo::AllreduceOptions options(context_);
        if (what.in != what.out)
            options.setInput(static_cast<T*>(const_cast<void*>(what.in)), what.count);
        options.setOutput(static_cast<T*>(what.out), what.count);
        options.setReduceFunction(function_of(what.type, what.reduce));
        options.setTag(tag());
        ::gloo::allreduce(options);
    });
    if (what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

Result<void> GlooGroup::reduce(const Operation& what) {
    if (what.count == 0) return {};
    std::vector<std::byte> result(what.bytes());  // which Gloo wants on all ranks
    std::memcpy(result.data(), what.in, result.size());
    if (context_) {
        with_element(what.type, [&](auto element) {
            using T = decltype(element);
            ::gloo::ReduceOptions options(context_);
            options.setOutput(reinterpret_cast<T*>(result.data()), what.count);
            options.setReduceFunction(function_of(what.type, what.reduce));
            options.setRoot(static_cast<int>(what.root));
            options.setTag(tag());
            ::gloo::reduce(options);
        });
    }
    if (rank_ != what.root) return {};
    std::memcpy(what.out, result.data(), result.size());
    if (what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

Result<void> GlooGroup::reduce_scatter(const Operation& what) {
    const std::size_t part = what.bytes();
    if (part == 0) return {};
    std::vector<std::byte> parts(size_ * part);
    std::memcpy(parts.data() + rank_ * part, bytes_at(what.in, rank_ * part), part);
    if (context_) {
        ::gloo::AlltoallOptions options(context_);
        options.setInput(bytes_at(what.in), parts.size());
        options.setOutput(bytes_at(parts.data()), parts.size());
        options.setTag(tag());
        ::gloo::alltoall(options);
    }
    for (std::uint32_t rank = 1; rank < size_; ++rank)
        reduce_into(parts.data(), parts.data(), parts.data() + rank * part, what.count, what.type,
                    what.reduce);
    std::memcpy(what.out, parts.data(), part);
    if (what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

Result<void> GlooGroup::broadcast(const Operation& what) {
    if (!context_ || what.bytes() == 0) return {};
    ::gloo::BroadcastOptions options(context_);
    options.setOutput(bytes_at(what.out), what.bytes());
    options.setRoot(static_cast<int>(what.root));
    options.setTag(tag());
    ::gloo::broadcast(options);
    return {};
}

Result<void> GlooGroup::allgather(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    std::uint8_t* const own = bytes_at(what.out, rank_ * bytes);
    if (own != what.in) std::memcpy(own, what.in, bytes);
    if (!context_) return {};
    ::gloo::AllgatherOptions options(context_);
    options.setOutput(bytes_at(what.out), size_ * bytes);
    options.setTag(tag());
    ::gloo::allgather(options);
    return {};
}

Result<void> GlooGroup::allgatherv(const Operation& what) {
    const std::vector<std::size_t> parts = parts_of(what, size_);
    const auto own_part = parts.begin() + rank_;
    const std::size_t before = std::accumulate(parts.begin(), own_part, std::size_t{0});
    std::uint8_t* const own = bytes_at(what.out, before);
    if (own != what.in && *own_part > 0) std::memcpy(own, what.in, *own_part);
    if (!context_ || std::ranges::all_of(parts, [](std::size_t part) { return part == 0; }))
        return {};
    ::gloo::AllgathervOptions options(context_);
    options.setOutput(bytes_at(what.out), parts);
    options.setTag(tag());
    ::gloo::allgatherv(options);
    return {};
}

Result<void> GlooGroup::gather(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    // The root's own part may lie where it belongs already.
    std::vector<std::uint8_t> own(bytes_at(what.in), bytes_at(what.in) + bytes);
    if (!context_) {
        std::memcpy(what.out, own.data(), bytes);
        return {};
    }
    ::gloo::GatherOptions options(context_);
    options.setInput(own.data(), bytes);
    if (rank_ == what.root) options.setOutput(bytes_at(what.out), size_ * bytes);
    options.setRoot(static_cast<int>(what.root));
    options.setTag(tag());
    ::gloo::gather(options);
    return {};
}

Result<void> GlooGroup::scatter(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    std::vector<std::uint8_t> own(bytes);
    if (rank_ == what.root) std::memcpy(own.data(), bytes_at(what.in, what.root * bytes), bytes);
    if (context_) {
        ::gloo::ScatterOptions options(context_);
        std::vector<std::uint8_t*> parts;
        for (std::uint32_t rank = 0; rank < size_; ++rank)
            parts.push_back(bytes_at(what.in, rank * bytes));
        if (rank_ == what.root) options.setInputs(parts, bytes);
        options.setOutput(own.data(), bytes);
        options.setRoot(static_cast<int>(what.root));
        options.setTag(tag());
        ::gloo::scatter(options);
    }
    std::memcpy(what.out, own.data(), bytes);
    return {};
}

Result<void> GlooGroup::alltoall(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    if (!context_) {
        std::memcpy(what.out, what.in, bytes);
        return {};
    }
    ::gloo::AlltoallOptions options(context_);
    options.setInput(bytes_at(what.in), size_ * bytes);
    options.setOutput(bytes_at(what.out), size_ * bytes);
    options.setTag(tag());
    ::gloo::alltoall(options);
    return {};
}

Result<void> GlooGroup::barrier(const Operation&) {
    if (!context_) return {};
    ::gloo::BarrierOptions options(context_);
    options.setTag(tag());
    ::gloo::barrier(options);
    return {};
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
    if (auto checked = check_peers(sends, receives); !checked)
        return std::unexpected(checked.error());
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
