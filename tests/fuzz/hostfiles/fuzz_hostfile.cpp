#include "hostfiles/hostfile.h"
#include "hostfiles/yaml_hostfile.h"
#include "tests/fuzz/hostfiles/promises.h"

using namespace dtrun;

namespace {

void check(const Result<HostList>& hosts) {
    if (hosts)
        require_hosts(*hosts);
    else
        require_message(hosts.error(), "hf");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check(parse_hostfile(text, "hf"));
    if (!looks_like_yaml(text)) check(parse_yaml_hostfile(text, "hf"));
    return 0;
}
