#include "worker/ranks/health_check.h"

#include "base/process/subprocess.h"
#include "worker/ranks/helper_run.h"

#include <utility>

namespace dtrun::ranks {

asio::awaitable<Result<void>> check_health(Supervisor& processes, RankCommand command,
                                           std::chrono::seconds limit) {
    const auto end = co_await run_helper(processes, std::move(command), limit, 0);
    if (!end) co_return fail(end.error(), "--health-check");
    const std::string said = last_words(end->err);
    if (!end->status)
        co_return fail(Errc::timed_out, "--health-check: has not ended within {} s{}",
                       limit.count(), said);
    if (*end->status == 0) co_return Result<void>{};
    co_return fail(Errc::internal, "--health-check: {}{}", describe_exit(*end->status), said);
}

}  // namespace dtrun::ranks
