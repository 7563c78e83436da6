#include "worker/agent/shared_page.h"

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

Result<void> SharedPage::open() {
    file_ = Fd(::memfd_create("dtrun-change", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void* memory = MAP_FAILED;
    if (file_ && ::ftruncate(file_.get(), ChangePage::kBytes) == 0)
        memory =
            ::mmap(nullptr, ChangePage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (memory == MAP_FAILED)
        return fail(Errc::internal, "memory to share with ranks: {}", std::strerror(errno));
    // Who maps it from now on can only read. A kernel that cannot do that is no reason to fail.
    (void)::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    (void)::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    page_ = new (memory) ChangePage;
    return {};
}

SharedPage::~SharedPage() {
    if (page_ != nullptr) ::munmap(page_, ChangePage::kBytes);
}

}  // namespace dtrun::agent
