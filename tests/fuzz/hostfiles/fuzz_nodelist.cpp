#include "hostfiles/nodelist.h"
#include "tests/fuzz/hostfiles/promises.h"

using namespace dtrun;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto names = expand_nodelist({reinterpret_cast<const char*>(data), size});
    if (!names) {
        require_message(names.error(), "nodelist");
        return 0;
    }
    require(!names->empty() && names->size() <= kHostsMax, "1..kHostsMax names");
    for (const std::string& name : *names) require_name(name);
    require(expand_nodelist(compress_nodelist(*names)).value() == *names, "compressed and back");
    return 0;
}
