#include "worker/mpi/pmix_bridge.h"

#include "worker/mpi/pmix_job.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

namespace dtrun::mpi {
namespace {

using namespace pmix;

PmixBridge* the_bridge = nullptr;

template <class T>
std::span<const T> span_of(const T* items, std::size_t size) {
    return {items, items == nullptr ? 0 : size};
}

std::string_view key_of(const Info& info) {
    return {info.key, ::strnlen(info.key, sizeof info.key)};
}

const Info* find(std::span<const Info> infos, std::string_view key) {
    for (const Info& info : infos)
        if (key_of(info) == key) return &info;
    return nullptr;
}

/// Sign-extended; nothing for what is not one.
std::optional<std::uint64_t> number_in(const Value& value) {
    const auto extend = [](std::int64_t number) { return static_cast<std::uint64_t>(number); };
    switch (value.type) {
        case kBool:
            return value.data.flag ? 1 : 0;
        case kSize:
            return value.data.size;
        case kPid:
            return extend(value.data.pid);
        case kInt:
            return extend(value.data.integer);
        case kInt8:
            return extend(value.data.int8);
        case kInt16:
            return extend(value.data.int16);
        case kInt32:
            return extend(value.data.int32);
        case kInt64:
            return extend(value.data.int64);
        case kUint:
            return value.data.uint;
        case kUint8:
        case kPersistence:
            return value.data.uint8;
        case kUint16:
            return value.data.uint16;
        case kUint32:
        case kProcRank:
            return value.data.uint32;
        case kUint64:
            return value.data.uint64;
        case kStatus:
            return extend(value.data.status);
        default:
            return std::nullopt;
    }
}

/// The other way round, with `bytes` for what is no number; what libpmix gets with it lives as long
/// as `item`.
Value value_of(PmixItem& item) {
    Value value;
    std::memset(&value, 0, sizeof value);
    value.type = item.type;
    if (item.type == kString) {
        value.data.string = item.bytes.data();
    } else if (item.type == kByteObject) {
        value.data.bo = {item.bytes.data(), item.bytes.size()};
    } else if (item.type == kBool) {
        value.data.flag = item.number != 0;
    } else {
        // All are the low bytes of it, where the machine has these first.
        static_assert(std::endian::native == std::endian::little);
        value.data.uint64 = item.number;
    }
    return value;
}

std::optional<PmixItem> item_of(const Info& info, std::uint32_t rank, bool once) {
    PmixItem item;
    item.key = key_of(info);
    item.rank = rank;
    item.type = info.value.type;
    item.once = once;
    if (info.value.type == kString) {
        item.bytes = info.value.data.string == nullptr ? "" : info.value.data.string;
    } else if (info.value.type == kByteObject) {
        item.bytes.assign(info.value.data.bo.bytes, info.value.data.bo.size);
    } else {
        const auto number = number_in(info.value);
        if (!number) return std::nullopt;
        item.number = *number;
    }
    return item;
}

std::vector<std::string> key_list(char** keys) {
    std::vector<std::string> list;
    for (; keys != nullptr && *keys != nullptr; ++keys) list.emplace_back(*keys);
    return list;
}

/// How long a lookup waits, in ms.
std::uint64_t lookup_time(std::span<const Info> infos) {
    constexpr std::uint64_t forever = 0xffff'ffff;
    if (find(infos, "pmix.wait") == nullptr) return 0;
    const Info* const timeout = find(infos, "pmix.timeout");
    const std::uint64_t seconds = timeout == nullptr ? 0 : number_in(timeout->value).value_or(0);
    return seconds == 0 ? forever : std::min(seconds * 1000, forever);
}

/// Whether a rank of this host has ended instead of entering the fence: libpmix, which counts the
/// ranks that are here, then says so with the fence.
bool somebody_gone(std::span<const Info> infos) {
    const Info* const status = find(infos, "pmix.loc.col.st");
    return status != nullptr && status->value.type == kStatus &&
           status->value.data.status != kSuccess;
}

void release_string(void* context) {
    delete static_cast<std::string*>(context);
}

}  // namespace

/// Called on libpmix' thread; arguments are only good during the call.
struct PmixBridge::Callbacks {
    static Status client_connected(const Proc* proc, void*, OpDone done, void* context) {
        if (!the_bridge->ours(proc)) return kErrorBadParameter;
        the_bridge->tell(PmixConnected{proc->rank});
        if (done != nullptr) done(kSuccess, context);
        return kSuccess;
    }
    static Status client_finalized(const Proc* proc, void*, OpDone done, void* context) {
        if (!the_bridge->ours(proc)) return kErrorBadParameter;
        the_bridge->tell(PmixFinalized{the_bridge->wait_for(done, context), proc->rank});
        return kSuccess;
    }
    static Status abort(const Proc* proc, void*, int status, const char*, Proc*, std::size_t,
                        OpDone done, void* context) {
        if (!the_bridge->ours(proc)) return kErrorBadParameter;
        the_bridge->tell(PmixAborted{the_bridge->wait_for(done, context), proc->rank, status});
        return kSuccess;
    }
    static Status fence_nb(const Proc* procs, std::size_t procs_size, const Info* info,
                           std::size_t info_size, char* data, std::size_t data_size, ModexDone done,
                           void* context) {
        const std::unique_ptr<char, void (*)(void*)> owned(data, ::free);
        std::string bytes = data == nullptr ? "" : std::string(data, data_size);
        const bool good =
            the_bridge->meet(PmixCollective::fence, span_of(procs, procs_size),
                             span_of(info, info_size), std::move(bytes), done, context);
        return good ? kSuccess : kErrorBadParameter;
    }
    static Status connect(const Proc* procs, std::size_t procs_size, const Info* info,
                          std::size_t info_size, OpDone done, void* context) {
        const bool good = the_bridge->meet(PmixCollective::connect, span_of(procs, procs_size),
                                           span_of(info, info_size), {}, done, context);
        return good ? kSuccess : kErrorNotSupported;
    }
    static Status disconnect(const Proc* procs, std::size_t procs_size, const Info* info,
                             std::size_t info_size, OpDone done, void* context) {
        const bool good = the_bridge->meet(PmixCollective::disconnect, span_of(procs, procs_size),
                                           span_of(info, info_size), {}, done, context);
        return good ? kSuccess : kErrorNotSupported;
    }
    static Status direct_modex(const Proc* proc, const Info*, std::size_t, ModexDone done,
                               void* context) {
        if (!the_bridge->ours(proc)) return kErrorNotFound;
        the_bridge->tell(PmixModex{the_bridge->wait_for(done, context), proc->rank});
        return kSuccess;
    }
    static Status publish(const Proc* proc, const Info* info, std::size_t info_size, OpDone done,
                          void* context) {
        if (!the_bridge->ours(proc)) return kErrorBadParameter;
        const auto infos = span_of(info, info_size);
        const Info* const persistence = find(infos, "pmix.persist");
        const bool once =
            persistence != nullptr && number_in(persistence->value) == kPersistFirstRead;
        PmixPublish message;
        for (const Info& entry : infos) {
            if (key_of(entry).starts_with("pmix.")) continue;  // how, not what
            auto item = item_of(entry, proc->rank, once);
            if (!item) return kErrorNotSupported;
            message.items.push_back(std::move(*item));
        }
        if (message.items.empty()) return kErrorBadParameter;
        message.id = the_bridge->wait_for(done, context);
        the_bridge->tell(message);
        return kSuccess;
    }
    static Status lookup(const Proc* proc, char** keys, const Info* info, std::size_t info_size,
                         LookupDone done, void* context) {
        if (!the_bridge->ours(proc)) return kErrorBadParameter;
        PmixLookup message;
        message.keys = key_list(keys);
        if (message.keys.empty()) return kErrorBadParameter;
        message.timeout_ms = lookup_time(span_of(info, info_size));
        message.id = the_bridge->wait_for(done, context);
        the_bridge->tell(message);
        return kSuccess;
    }
    static Status unpublish(const Proc* proc, char** keys, const Info*, std::size_t, OpDone done,
                            void* context) {
        if (!the_bridge->ours(proc)) return kErrorBadParameter;
        PmixUnpublish message;
        message.rank = proc->rank;
        message.keys = key_list(keys);
        message.id = the_bridge->wait_for(done, context);
        the_bridge->tell(message);
        return kSuccess;
    }

    static Status spawn(const Proc* proc, const Info*, std::size_t, const void*, std::size_t, void*,
                        void*) {
        if (the_bridge->ours(proc)) the_bridge->tell(PmixSpawn{proc->rank});
        return kErrorNotSupported;
    }

    // Open MPI wants to know of events, and works without; there are none.
    static Status register_events(Status*, std::size_t, const Info*, std::size_t, OpDone, void*) {
        return kOperationSucceeded;
    }
    static Status deregister_events(Status*, std::size_t, OpDone, void*) {
        return kOperationSucceeded;
    }
    static Status notify_event(Status, const Proc*, std::uint8_t, Info*, std::size_t, OpDone,
                               void*) {
        return kOperationSucceeded;
    }
    static Status job_control(const Proc*, const Proc*, std::size_t, const Info*, std::size_t,
                              InfoDone, void*) {
        return kOperationSucceeded;
    }
};

PmixBridge::PmixBridge(int socket)
    : socket_(socket), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    module_.client_connected = Callbacks::client_connected;
    module_.client_finalized = Callbacks::client_finalized;
    module_.abort = Callbacks::abort;
    module_.fence_nb = Callbacks::fence_nb;
    module_.direct_modex = Callbacks::direct_modex;
    module_.publish = Callbacks::publish;
    module_.lookup = Callbacks::lookup;
    module_.unpublish = Callbacks::unpublish;
    module_.spawn = Callbacks::spawn;
    module_.connect = Callbacks::connect;
    module_.disconnect = Callbacks::disconnect;
    module_.register_events = Callbacks::register_events;
    module_.deregister_events = Callbacks::deregister_events;
    module_.notify_event = Callbacks::notify_event;
    module_.job_control = Callbacks::job_control;
    the_bridge = this;
}

void PmixBridge::begin(std::string nspace, std::uint32_t world_size) {
    nspace_ = std::move(nspace);
    world_size_ = world_size;
}

Result<void> PmixBridge::flush() {
    std::uint64_t count = 0;
    const ssize_t ignored = ::read(wake_.get(), &count, sizeof count);
    static_cast<void>(ignored);  // nothing there: somebody has flushed all
    // Writes with the lock held, so that messages sent meanwhile come behind these.
    const std::scoped_lock lock(mutex_);
    const std::string bytes = std::exchange(outgoing_, {});
    return write_all(socket_, bytes);
}

/// Sends at once if possible: the agent must hear of this before it notices what the rank does
/// next, such as to end.
void PmixBridge::send(const Bytes& frame) {
    const std::scoped_lock lock(mutex_);
    ssize_t sent = 0;
    if (outgoing_.empty())
        sent = ::send(socket_, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(frame.size())) return;
    outgoing_ += frame.substr(sent < 0 ? 0 : static_cast<std::size_t>(sent));
    constexpr std::uint64_t one = 1;
    const ssize_t ignored = ::write(wake_.get(), &one, sizeof one);
    static_cast<void>(ignored);  // full: it is readable
}

template <class Message>
void PmixBridge::tell(const Message& message) {
    send(pmix_encode(message));
}

std::uint64_t PmixBridge::wait_for(Done done, void* context) {
    const std::scoped_lock lock(mutex_);
    pending_.emplace(++last_id_, Pending{done, context});
    return last_id_;
}

PmixBridge::Pending PmixBridge::take_pending(std::uint64_t id) {
    const std::scoped_lock lock(mutex_);
    const auto found = pending_.extract(id);
    return found.empty() ? Pending{pmix::OpDone(nullptr), nullptr} : found.mapped();
}

bool PmixBridge::ours(const Proc* proc) const {
    return proc != nullptr && proc->rank < world_size_ &&
           std::string_view(proc->nspace, ::strnlen(proc->nspace, sizeof proc->nspace)) == nspace_;
}

bool PmixBridge::meet(PmixCollective collective, std::span<const Proc> procs,
                      std::span<const Info> infos, std::string bytes, Done done, void* context) {
    PmixFence fence;
    fence.collective = collective;
    fence.bytes = std::move(bytes);
    fence.lost = somebody_gone(infos);
    for (Proc proc : procs) {
        const bool all = proc.rank == kRankWildcard;
        if (all) proc.rank = 0;
        if (!ours(&proc)) return false;
        if (all && procs.size() > 1) return false;
        if (!all) fence.ranks.push_back(proc.rank);
    }
    std::ranges::sort(fence.ranks);
    fence.id = wait_for(done, context);
    tell(fence);
    return true;
}

void PmixBridge::answer(const PmixAnswer& answer) {
    const Pending pending = take_pending(answer.id);
    if (const auto* const op = std::get_if<OpDone>(&pending.done); op != nullptr && *op != nullptr)
        (*op)(answer.status, pending.context);
    const auto* const modex = std::get_if<ModexDone>(&pending.done);
    if (modex == nullptr || *modex == nullptr) return;
    if (answer.bytes.empty())
        return (*modex)(answer.status, nullptr, 0, pending.context, nullptr, nullptr);
    auto* const bytes = new std::string(answer.bytes);  // until libpmix releases it
    (*modex)(answer.status, bytes->data(), bytes->size(), pending.context, release_string, bytes);
}

void PmixBridge::answer(const PmixFound& found) {
    const Pending pending = take_pending(found.id);
    const auto* const done = std::get_if<LookupDone>(&pending.done);
    if (done == nullptr || *done == nullptr) return;
    std::vector<PmixItem> items = found.items;
    std::vector<Pdata> data(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        std::memset(&data[i], 0, sizeof data[i]);
        data[i].proc = pmix_proc(nspace_, items[i].rank);
        items[i].key.copy(data[i].key, sizeof data[i].key - 1);
        data[i].value = value_of(items[i]);
    }
    // libpmix packs the data within this call.
    (*done)(found.status, data.data(), data.size(), pending.context);
}

void PmixBridge::want(const PmixLibrary& library, const PmixWant& want) {
    const Proc proc = pmix_proc(nspace_, want.rank);
    const auto respond = [](Status status, char* data, std::size_t size, void* context) {
        const auto id = reinterpret_cast<std::uintptr_t>(context);
        the_bridge->tell(PmixData{id, status, data == nullptr ? "" : std::string(data, size)});
    };
    const Status status = library.dmodex_request(&proc, respond, reinterpret_cast<void*>(want.id));
    if (status != kSuccess) tell(PmixData{want.id, status, {}});
}

}  // namespace dtrun::mpi
