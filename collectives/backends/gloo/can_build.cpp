// Compiled by CMake: whether this Gloo has what the plug-in needs. Its interface has changed without a version.
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

struct Store : gloo::rendezvous::Store {
    void set(const std::string&, const std::vector<char>&) override {}
    std::vector<char> get(const std::string&) override { return {}; }
    void wait(const std::vector<std::string>&) override {}
};

int main() {
    Store store;
    gloo::transport::tcp::attr attributes;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(0, 1);
    gloo::AllreduceOptions options(context);
    options.setReduceFunction([](void*, const void*, const void*, size_t) {});
    gloo::allreduce(options);
    return GLOO_VERSION_MAJOR;
}
