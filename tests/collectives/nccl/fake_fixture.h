#pragma once

#include "tests/collectives/nccl/nccl_fixture.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace dtrun::collectives::nccl {

using Library = std::shared_ptr<const NcclLibrary>;
using Body = std::function<Result<void>(Group& group, const GroupSpec& spec)>;

/// NCCL, the CUDA runtime and the codecs in one.
inline Library fake() {
    auto library = NcclLibrary::open({FAKE_NCCL, FAKE_NCCL});
    REQUIRE(library.has_value());
    return *library;
}

/// With the codecs of the fake library, unless there are others.
inline std::vector<Result<void>> on_fake(std::uint32_t size, const Body& body,
                                         const Library& library, Settings settings = {},
                                         std::chrono::seconds timeout = std::chrono::seconds(30)) {
    if (settings.codecs.empty()) settings.codecs = FAKE_NCCL;
    return run_ranks(
        size,
        [&](GroupSpec spec) {
            spec.timeout = timeout;
            return NcclGroup::connect(library, spec, settings);
        },
        body);
}

/// Memory of the GPU, with numbers in it.
class Numbers {
public:
    Numbers(const Library& library, std::span<const float> values)
        : gpu_(library->gpu), bytes_(values.size_bytes()) {
        gpu_.malloc(&data_, bytes_);
        gpu_.memcpy(data_, values.data(), bytes_, kMemcpyDefault);
    }
    Numbers(const Library& library, std::initializer_list<float> values)
        : Numbers(library, std::vector<float>(values)) {}
    ~Numbers() { gpu_.free(data_); }
    Numbers(const Numbers&) = delete;
    Numbers& operator=(const Numbers&) = delete;

    float* data() const { return static_cast<float*>(data_); }
    std::size_t count() const { return bytes_ / sizeof(float); }
    std::vector<float> values() const {
        std::vector<float> values(count());
        gpu_.memcpy(values.data(), data_, bytes_, kMemcpyDefault);
        return values;
    }

private:
    const GpuFunctions& gpu_;
    std::size_t bytes_;
    void* data_ = nullptr;
};

inline Result<void> sum(Group& group, const Numbers& numbers) {
    return group.run(
        op::allreduce(numbers.data(), numbers.data(), numbers.count(), DType::f32, Reduce::sum));
}

/// What an operation has ended with, in words.
inline std::string outcome(const Result<void>& result) {
    return result ? "ok" : result.error().message;
}

}  // namespace dtrun::collectives::nccl
