#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"
#include "worker/stores/notice_address.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::stores {

/// The bytes that tell a process under hvd.elastic.run that hosts have come and gone: it then asks for a
/// new place at its next state.commit(). "Come and gone" whatever has happened: only then do all ranks
/// synchronize their state afterwards, survivors and newcomers alike.
/// \param timestamp  greater than that of the process's last notice
std::string horovod_notice(std::string_view secret, std::int64_t timestamp);

/// Whether a process has signed this reply. \param reply  all of it
bool is_signed(std::string_view secret, std::string_view reply);

/// Delivers a notice to a process of this host. Errc: closed, timed_out, denied (its reply is not signed)
asio::awaitable<Result<void>> deliver_notice(asio::any_io_executor executor, NoticeAddress address,
                                             std::int64_t timestamp, Deadline deadline);

}  // namespace dtrun::stores
