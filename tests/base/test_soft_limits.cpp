#include "base/process/soft_limits.h"
#include "tests/support/catch.h"

#include <sys/resource.h>

namespace dtrun {
namespace {

rlimit limit_of(__rlimit_resource resource) {
    rlimit limit{};
    ::getrlimit(resource, &limit);
    return limit;
}

/// Restores a limit, as other tests have the same process.
class LimitKept {
public:
    explicit LimitKept(__rlimit_resource resource)
        : resource_(resource), before_(limit_of(resource)) {}
    ~LimitKept() { ::setrlimit(resource_, &before_); }
    LimitKept(const LimitKept&) = delete;
    LimitKept& operator=(const LimitKept&) = delete;

private:
    __rlimit_resource resource_;
    rlimit before_;
};

}  // namespace

TEST_CASE("a carried core limit is the caller's, up or down, as far as the hard limit goes",
          "[limits]") {
    const LimitKept kept(RLIMIT_CORE);
    set_forwarded_rlimit("core", 0);
    CHECK(soft_limit("core") == 0u);
    set_forwarded_rlimit("core", kNoLimit);
    CHECK(soft_limit("core") == limit_of(RLIMIT_CORE).rlim_max);
}

TEST_CASE("a carried limit of the stack is raised and never lowered", "[limits]") {
    const LimitKept kept(RLIMIT_STACK);
    const std::uint64_t before = soft_limit("stack").value();
    set_forwarded_rlimit("stack", 65'536);
    CHECK(soft_limit("stack") == before);
    if (limit_of(RLIMIT_STACK).rlim_max < before + 65'536) return;
    set_forwarded_rlimit("stack", before + 65'536);
    CHECK(soft_limit("stack") == before + 65'536);
}

TEST_CASE("a limit of another version of dtrun is ignored", "[limits]") {
    set_forwarded_rlimit("tomorrow", 1);
    CHECK_FALSE(soft_limit("tomorrow").has_value());
}

}  // namespace dtrun
