#include "launcher/head/assigner.h"

#include "base/log.h"
#include "base/text_layout.h"

namespace dtrun::head {

void Assigner::connections_reset(const std::string& host, const ResetStatus& news) {
    if (news.connections > 0)
        log::info("{}: ended {} of ranks to a lost host", host,
                  plural(news.connections, "connection"));
    if (news.problem.empty() || std::exchange(warned_of_severing_, true)) return;
    log::warn(
        "{}: connections of ranks to a lost host cannot be ended ({}): ranks that wait for it "
        "do so until their framework's own timeout",
        host, news.problem);
}

}  // namespace dtrun::head
