// Whatever gdb, py-spy and /proc may print: what is made of it has bounds.

#include "worker/ranks/stack_text.h"

#include <algorithm>
#include <cstdlib>

namespace dtrun {

using namespace ranks;
namespace {

constexpr std::size_t kCutBytes = 3;  // of "…"

void look_at(std::vector<ThreadStack> threads) {
    const std::vector<ThreadStack> folded = fold_threads(std::move(threads));
    if (folded.size() > kThreadsMax + 1) std::abort();
    for (const ThreadStack& thread : folded) {
        if (thread.frames.size() > kFramesMax + 1) std::abort();
        if (thread.name.size() > kFrameBytesMax + kCutBytes) std::abort();
        for (const std::string& frame : thread.frames)
            if (frame.size() > kFrameBytesMax + kCutBytes) std::abort();
    }
}

}  // namespace
}  // namespace dtrun

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace dtrun::ranks;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    dtrun::look_at(parse_gdb(text));
    dtrun::look_at(parse_py_spy(text));
    dtrun::look_at(parse_faulthandler(text, text.substr(0, size / 8)));
    dtrun::look_at({{.name = "kernel", .frames = parse_kernel_stack(text)}});
    return 0;
}
