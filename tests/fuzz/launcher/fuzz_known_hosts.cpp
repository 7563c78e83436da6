#include "launcher/transport/known_hosts.h"
#include "tests/fuzz/launcher/promises.h"

using namespace dtrun;
using namespace dtrun::transport;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    KnownHosts hosts;
    hosts.add({reinterpret_cast<const char*>(data), size});
    for (const char* name : {"n1", "node1", "[node1]:2222", "gw.c", ""}) {
        const KnownHost found = hosts.find(name);
        for (const HostKey& key : found.keys) {
            require(!key.base64.empty(), "keys are not empty");
            const bool revoked = judge(found, key) == KeyVerdict::revoked;
            require(revoked || judge(found, key) == KeyVerdict::known, "a key is known or revoked");
        }
        for (const HostKey& key : found.revoked)
            require(judge(found, key) == KeyVerdict::revoked, "a revoked key is never trusted");
    }
    return 0;
}
