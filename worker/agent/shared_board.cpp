#include "worker/agent/shared_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <new>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif

namespace dtrun::agent {

Result<void> SharedBoard::open() {
    file_ = Fd(::memfd_create("dtrun-change", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void* memory = MAP_FAILED;
    if (file_ && ::ftruncate(file_.get(), ChangeBoard::kBytes) == 0)
        memory = ::mmap(nullptr, ChangeBoard::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        file_.get(), 0);
    if (memory == MAP_FAILED)
        return fail(Errc::internal, "memory to share with ranks: {}", std::strerror(errno));
    // Who maps it from now on can only read. A kernel that cannot do that is no reason to fail.
    (void)::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    (void)::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    board_ = new (memory) ChangeBoard;
    return {};
}

SharedBoard::~SharedBoard() {
    if (board_ != nullptr) ::munmap(board_, ChangeBoard::kBytes);
}

}  // namespace dtrun::agent
