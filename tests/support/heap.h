#pragma once

#include <malloc.h>
#include <cstddef>

#ifdef __SANITIZE_ADDRESS__
/// Of sanitizer/allocator_interface.h, which g++ does not bring.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace dtrun {

/// Bytes that this process has allocated and not freed. Meaning little by itself: two of them tell what has been kept.
inline std::size_t heap_bytes() {
#ifdef __SANITIZE_ADDRESS__
    return __sanitizer_get_current_allocated_bytes();
#else
    return ::mallinfo2().uordblks;
#endif
}

}  // namespace dtrun
