#include "collectives/codec/isa.h"

#include "collectives/codec/kernels.h"

#include <atomic>

namespace dtrun::collectives {
namespace {

bool has(Isa isa) {
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    switch (isa) {
        case Isa::scalar:
            return true;
        case Isa::avx2:
            return avx2;
        case Isa::avx512:
            return avx2 && __builtin_cpu_supports("avx512f") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl");
    }
    return false;
#else
    return isa == Isa::scalar;
#endif
}

Isa best() {
    if (has(Isa::avx512)) return Isa::avx512;
    return has(Isa::avx2) ? Isa::avx2 : Isa::scalar;
}

std::atomic<Isa>& chosen() {
    static std::atomic<Isa> isa = best();
    return isa;
}

}  // namespace

Isa isa() {
    return chosen().load(std::memory_order_relaxed);
}

Result<void> set_isa(Isa isa) {
    if (!has(isa)) return fail(Errc::not_found, "this processor has no {}", name_of(isa));
    chosen().store(isa, std::memory_order_relaxed);
    return {};
}

const Kernels& kernels() {
#if defined(__x86_64__)
    switch (isa()) {
        case Isa::avx512:
            return kAvx512Kernels;
        case Isa::avx2:
            return kAvx2Kernels;
        case Isa::scalar:
            break;
    }
#endif
    return kScalarKernels;
}

std::string_view name_of(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return "scalar";
        case Isa::avx2:
            return "avx2";
        case Isa::avx512:
            return "avx512";
    }
    return "?";
}

}  // namespace dtrun::collectives
