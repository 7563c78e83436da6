#pragma once

#include "collectives/group.h"

#include <cstring>

namespace dtrun::collectives {

/// A group of one rank, which needs no library.
class SelfGroup final : public Group {
public:
    GroupFacts facts() const override { return {"", "none", {}}; }

    Result<void> allreduce(const void* in, void* out, std::size_t count, DType type,
                           Reduce) override {
        return copy(in, out, count * bytes_of(type));
    }
    Result<void> reduce(const void* in, void* out, std::size_t count, DType type, Reduce,
                        std::uint32_t) override {
        return copy(in, out, count * bytes_of(type));
    }
    Result<void> reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                Reduce) override {
        return copy(in, out, count * bytes_of(type));
    }
    Result<void> broadcast(void*, std::size_t, std::uint32_t) override { return {}; }
    Result<void> allgather(const void* in, void* out, std::size_t bytes) override {
        return copy(in, out, bytes);
    }
    Result<void> allgatherv(const void* in, void* out,
                            std::span<const std::size_t> bytes) override {
        return copy(in, out, bytes[0]);
    }
    Result<void> gather(const void* in, void* out, std::size_t bytes, std::uint32_t) override {
        return copy(in, out, bytes);
    }
    Result<void> scatter(const void* in, void* out, std::size_t bytes, std::uint32_t) override {
        return copy(in, out, bytes);
    }
    Result<void> alltoall(const void* in, void* out, std::size_t bytes) override {
        return copy(in, out, bytes);
    }
    Result<void> barrier() override { return {}; }
    Result<std::unique_ptr<Pending>> start(std::span<const Send>,
                                           std::span<const Receive>) override {
        return fail(Errc::invalid_input, "there is no other rank");
    }
    void abort() noexcept override {}

private:
    static Result<void> copy(const void* in, void* out, std::size_t bytes) {
        if (in != out && bytes > 0) std::memmove(out, in, bytes);
        return {};
    }
};

}  // namespace dtrun::collectives
