#pragma once

#include <malloc.h>

namespace dtrun {

/// Has the allocator keep up to 16 MiB that are freed for what comes next. By itself it gives large blocks back to
/// the system at once, which clears every page of the next one: a process that passes values of a megabyte
/// on spends most of its time there. And has all threads share one heap: each would otherwise begin with one of its own,
/// which grows by a system call for every few pages, though only one thread of ours allocates much. For our own programs, not
/// for a library in somebody else's.
/// musl's allocator has no such settings; nothing happens there.
inline void keep_freed_memory() {
#ifdef __GLIBC__
    constexpr int kKeptBytes = 16 << 20;
    ::mallopt(M_TRIM_THRESHOLD, kKeptBytes);
    ::mallopt(M_MMAP_THRESHOLD, kKeptBytes);
    ::mallopt(M_ARENA_MAX, 1);
#endif
}

/// Gives all of it back to the system, also what lies among blocks that are in use: to be called when much was freed
/// and nothing is under way, as it takes milliseconds for each hundred megabytes.
inline void give_freed_memory_back() {
#ifdef __GLIBC__
    ::malloc_trim(0);
#endif
}

}  // namespace dtrun
