#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::stores {

/// Where a process that runs under hvd.elastic.run listens for notices of changed hosts.
struct NoticeAddress {
    std::uint16_t port = 0;  ///< on every interface of the host, loopback included
    std::string secret;      ///< key of the HMACs of a notice and of its reply
};

/// Reads what Horovod's WorkerNotificationManager puts under worker_addresses (runner/elastic/worker.py): the
/// pickle, in base64, of ({interface: [(address, port), ...]}, secret).
///
/// Of pickle's opcodes only those are known that make numbers, texts, bytes, lists, tuples and dictionaries:
/// nothing that comes here is ever executed, as it is by Horovod's own driver (CVE-2024-10190).
/// Errc: invalid_input
Result<NoticeAddress> read_notice_address(std::string_view base64);

}  // namespace dtrun::stores
