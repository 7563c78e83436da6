#pragma once

#include "collectives/backends/nccl/group.h"
#include "tests/collectives/support/group_checks.h"

#include <cstdlib>
#include <memory>
#include <string>

namespace dtrun::collectives::nccl {

/// A variable of the environment, until the end of the test.
class Variable {
public:
    Variable(const char* name, const std::string& value) : name_(name) {
        ::setenv(name, value.c_str(), 1);
    }
    ~Variable() { ::unsetenv(name_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

private:
    const char* name_;
};

/// Memory of the current GPU of the thread that asks for it.
inline DeviceMemory device_memory(const NcclLibrary& library) {
    const GpuFunctions& gpu = library.gpu;
    return {[&gpu](std::size_t bytes) {
                void* data = nullptr;
                gpu.malloc(&data, bytes);
                return data;
            },
            [&gpu](void* data) { gpu.free(data); },
            [&gpu](void* to, const void* from, std::size_t bytes) {
                gpu.memcpy(to, from, bytes, kMemcpyDefault);
            },
            [&gpu](void* to, const void* from, std::size_t bytes) {
                gpu.memcpy(to, from, bytes, kMemcpyDefault);
            }};
}

}  // namespace dtrun::collectives::nccl
