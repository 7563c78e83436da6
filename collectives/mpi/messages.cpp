#include "collectives/mpi/messages.h"

#include <algorithm>

namespace dtrun::collectives {
namespace {

/// MPI keeps messages of one sender, communicator and tag in order. Tags up to 32,767 are everywhere.
int tag_of(std::uint64_t call) {
    return static_cast<int>(call & 0x7fff);
}

std::size_t pieces_of(std::size_t bytes) {
    return (bytes + kPieceBytes - 1) / kPieceBytes;
}

}  // namespace

Messages::Messages(Runtime& runtime, Runtime::Activity& activity, std::size_t pieces)
    : runtime_(runtime), activity_(activity), requests_(few_) {
    activity_.add(1);
    if (pieces <= kFew) return;
    many_.resize(pieces);
    requests_ = many_.data();
}

template <class Post>
int Messages::begin(std::size_t bytes, Post post) {
    for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
        const int code =
            post(at, static_cast<int>(std::min(kPieceBytes, bytes - at)), &requests_[count_]);
        if (code != MPI_SUCCESS) return code;
        ++count_;
    }
    return MPI_SUCCESS;
}

Result<std::unique_ptr<Pending>> Messages::start(Runtime& runtime, Runtime::Activity& activity,
                                                 MPI_Comm comm, std::uint64_t call,
                                                 std::span<const Send> sends,
                                                 std::span<const Receive> receives) {
    std::size_t pieces = 0;
    for (const Send& send : sends) pieces += pieces_of(send.bytes);
    for (const Receive& receive : receives) pieces += pieces_of(receive.bytes);
    std::unique_ptr<Messages> messages(new Messages(runtime, activity, pieces));
    const int tag = tag_of(call);
    const auto turn = runtime.turn();
    for (const Receive& receive : receives) {
        const int code = messages->begin(receive.bytes, [&](std::size_t at, int bytes, auto to) {
            return MPI_Irecv(static_cast<std::byte*>(receive.data) + at, bytes, MPI_BYTE,
                             static_cast<int>(receive.peer), tag, comm, to);
        });
        if (code != MPI_SUCCESS) return mpi_failed(code, "MPI_Irecv");
    }
    for (const Send& send : sends) {
        const int code = messages->begin(send.bytes, [&](std::size_t at, int bytes, auto to) {
            return MPI_Isend(static_cast<const std::byte*>(send.data) + at, bytes, MPI_BYTE,
                             static_cast<int>(send.peer), tag, comm, to);
        });
        if (code != MPI_SUCCESS) return mpi_failed(code, "MPI_Isend");
    }
    return messages;
}

Messages::~Messages() {
    if (!Runtime::ended()) static_cast<void>(wait());
    activity_.add(-1);
}

void Messages::poll() {
    const auto turn = runtime_.turn();
    for (int done = 1; done != 0 && next_ < count_;) {
        const int code = MPI_Test(&requests_[next_], &done, MPI_STATUS_IGNORE);
        advance(code, "MPI_Test", done != 0);
    }
}

Result<void> Messages::wait() {
    const auto turn = runtime_.turn();
    while (next_ < count_)
        advance(MPI_Wait(&requests_[next_], MPI_STATUS_IGNORE), "MPI_Wait", true);
    return result_;
}

/// The first failure ends it all, for the others may never complete.
void Messages::advance(int code, const char* function, bool done) {
    if (code != MPI_SUCCESS) {
        result_ = mpi_failed(code, function);
        next_ = count_;
    } else if (done) {
        ++next_;
    }
}

}  // namespace dtrun::collectives
