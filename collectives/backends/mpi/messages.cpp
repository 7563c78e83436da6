#include "collectives/backends/mpi/messages.h"

#include <algorithm>

namespace dtrun::collectives {
namespace {

/// MPI keeps messages of one sender, communicator and tag in order. Tags up to 32,767 are everywhere.
int tag_of(std::uint64_t call) {
    return static_cast<int>(call & 0x7fff);
}

std::size_t chunks_of(std::size_t bytes) {
    return (bytes + kChunkBytes - 1) / kChunkBytes;
}

}  // namespace

MpiMessages::MpiMessages(MpiRuntime& runtime, MpiRuntime::Activity& activity, std::size_t chunks)
    : runtime_(runtime), activity_(activity), requests_(few_) {
    activity_.add(1);
    if (chunks <= kFew) return;
    many_.resize(chunks);
    requests_ = many_.data();
}

template <class Post>
int MpiMessages::begin(std::size_t bytes, bool receives, Post post) {
    for (std::size_t at = 0; at < bytes; at += kChunkBytes) {
        Request& request = requests_[count_];
        const int size = static_cast<int>(std::min(kChunkBytes, bytes - at));
        request.expected = receives ? size : -1;
        const int code = post(at, size, &request.handle);
        if (code != MPI_SUCCESS) return code;
        ++count_;
    }
    return MPI_SUCCESS;
}

Result<std::unique_ptr<Pending>> MpiMessages::start(MpiRuntime& runtime,
                                                    MpiRuntime::Activity& activity, MPI_Comm comm,
                                                    std::uint64_t call, std::span<const Send> sends,
                                                    std::span<const Receive> receives) {
    std::size_t chunks = 0;
    for (const Send& send : sends) chunks += chunks_of(send.bytes);
    for (const Receive& receive : receives) chunks += chunks_of(receive.bytes);
    std::unique_ptr<MpiMessages> messages(new MpiMessages(runtime, activity, chunks));
    const int tag = tag_of(call);
    const auto turn = runtime.turn();
    for (const Receive& receive : receives) {
        const int code =
            messages->begin(receive.bytes, true, [&](std::size_t at, int bytes, auto to) {
                return MPI_Irecv(static_cast<std::byte*>(receive.data) + at, bytes, MPI_BYTE,
                                 static_cast<int>(receive.peer), tag, comm, to);
            });
        if (code != MPI_SUCCESS) return mpi_failed(code, "MPI_Irecv");
    }
    for (const Send& send : sends) {
        const int code =
            messages->begin(send.bytes, false, [&](std::size_t at, int bytes, auto to) {
                return MPI_Isend(static_cast<const std::byte*>(send.data) + at, bytes, MPI_BYTE,
                                 static_cast<int>(send.peer), tag, comm, to);
            });
        if (code != MPI_SUCCESS) return mpi_failed(code, "MPI_Isend");
    }
    return messages;
}

MpiMessages::~MpiMessages() {
    if (!MpiRuntime::ended()) static_cast<void>(wait());
    activity_.add(-1);
}

void MpiMessages::poll() {
    const auto turn = runtime_.turn();
    for (int done = 1; done != 0 && next_ < count_;) {
        MPI_Status status;
        const int code = MPI_Test(&requests_[next_].handle, &done, &status);
        advance(code, "MPI_Test", done != 0, status);
    }
}

Result<void> MpiMessages::wait() {
    const auto turn = runtime_.turn();
    while (next_ < count_) {
        MPI_Status status;
        const int code = MPI_Wait(&requests_[next_].handle, &status);
        advance(code, "MPI_Wait", true, status);
    }
    return result_;
}

/// The first failure ends the wait, since other chunks may never complete.
void MpiMessages::advance(int code, const char* function, bool done, const MPI_Status& status) {
    if (code == MPI_SUCCESS && !done) return;
    if (code != MPI_SUCCESS)
        result_ = mpi_failed(code, function);
    else if (auto wrong = wrong_size(status))
        result_ = std::unexpected(std::move(*wrong));
    next_ = result_ ? next_ + 1 : count_;
}

/// MPI takes shorter messages than there is room for.
std::optional<Error> MpiMessages::wrong_size(const MPI_Status& status) const {
    const int expected = requests_[next_].expected;
    int got = expected;
    if (expected >= 0) MPI_Get_count(&status, MPI_BYTE, &got);
    if (got == expected) return std::nullopt;
    return Error{Errc::internal, fmt::format("member {} has sent {} B where this one receives {}",
                                             status.MPI_SOURCE, got, expected)};
}

}  // namespace dtrun::collectives
